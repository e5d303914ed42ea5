package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// A repository reads from one repository of a registry that implements OCI distribution 1.1.
// go-containerregistry does the authentication; it sends all requests through [repository.RoundTrip], which
// enforces our limits.
type repository struct {
	r          *Resolver
	host, repo string
	scheme     string
	credential credential

	mu            sync.Mutex
	authenticated http.RoundTripper // nil before the first request
}

// hub is the host that serves the images of docker.io.
const hub = "registry-1.docker.io"

func (r *Resolver) open(image reference.Named) (*repository, error) {
	g := &repository{r: r, host: reference.Domain(image), repo: reference.Path(image), scheme: "https"}
	file, err := readConfig(r.o.Config)
	if err != nil {
		return nil, err
	}
	g.credential = file.of(g.host, g.repo)
	if slices.Contains(r.o.Insecure, g.host) {
		g.scheme = "http"
	}
	if g.host == dockerIO {
		g.host = hub
	}
	return g, nil
}

var hostPort = regexp.MustCompile(`^(` + reference.DomainRegexp.String() + `)$`)

func isRegistry(host string) bool { return hostPort.MatchString(host) }

// connect authenticates at the registry, unless that has been done.
func (g *repository) connect(ctx context.Context) (http.RoundTripper, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.authenticated != nil {
		return g.authenticated, nil
	}
	var options []name.Option
	if g.scheme == "http" {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(g.host, options...)
	if err != nil {
		return nil, err
	}
	scopes := []string{"repository:" + g.repo + ":pull"}
	g.authenticated, err = transport.NewWithContext(ctx, registry, g.credential.authenticator(), transport.NewUserAgent(g, "outrider"), scopes)
	return g.authenticated, err
}

// fetch returns a manifest or a blob, with the header of the response.
func (g *repository) fetch(ctx context.Context, method, what string) ([]byte, http.Header, error) {
	t, err := g.connect(ctx)
	if err != nil {
		return nil, nil, g.explain(ctx, err)
	}
	address := url.URL{Scheme: g.scheme, Host: g.host, Path: "/v2/" + g.repo + "/" + what}
	req, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(what, "manifests/") {
		req.Header.Set("Accept", strings.Join(slices.Concat(indexTypes, manifestTypes), ", "))
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, nil, g.explain(ctx, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, nil, g.refused(res.Request.URL.Host, res.StatusCode)
	}
	body, err := io.ReadAll(res.Body)
	return body, res.Header, err
}

// A requestError reports why a request failed. It names only the host, because the URL of a redirect may contain
// a signature that grants access.
type requestError struct{ error }

// RoundTrip sends a request and follows its redirects. It limits the number of concurrent requests, the size of
// responses and the hosts. The body of the response is in memory, and is empty unless the status is 200.
func (g *repository) RoundTrip(req *http.Request) (*http.Response, error) {
	// The library tries TLS first even for an insecure registry, and falls back to plain HTTP if TLS fails in a
	// private network. Both are refused.
	if req.URL.Scheme != g.scheme && (g.scheme == "https" || req.URL.Host == g.host) {
		return nil, fmt.Errorf("%s is not used by %s", req.URL.Host, req.URL.Scheme)
	}
	select {
	case g.r.slots <- struct{}{}:
		defer func() { <-g.r.slots }()
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	res, err := g.r.client.Do(req)
	if err != nil {
		return nil, failure(req, err)
	}
	defer res.Body.Close()
	var body []byte
	if res.StatusCode == http.StatusOK {
		if body, err = io.ReadAll(io.LimitReader(res.Body, maxBytes+1)); err != nil {
			return nil, failure(req, err)
		}
		if len(body) > maxBytes {
			return nil, requestError{fmt.Errorf("%s sent more than %d bytes", res.Request.URL.Host, maxBytes)}
		}
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if req.URL.Path != "/v2/" {
		// Only the first challenge is used: with a later one the registry could make the token cover other
		// scopes.
		res.Header.Del("WWW-Authenticate")
	}
	return res, nil
}

func failure(req *http.Request, err error) error {
	var at *url.Error
	for errors.As(err, &at) {
		err = at.Err
	}
	var network *net.OpError
	host := req.URL.Host
	switch {
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		err = fmt.Errorf("%s uses plain HTTP: if that is intended, name it by --insecure-registry", host)
	case errors.As(err, &network) && network.Op == "dial":
		err = fmt.Errorf("%s cannot be reached: %w", host, err)
	default:
		err = fmt.Errorf("request to %s: %w", host, err)
	}
	return requestError{err}
}

// explain translates an error of the library. The library's text is dropped, because it may quote the registry's
// response or a token.
func (g *repository) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var ours requestError
	var answer *transport.Error
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &answer):
		host := g.host
		if answer.Request != nil {
			host = answer.Request.URL.Host
		}
		return g.refused(host, answer.StatusCode)
	}
	return fmt.Errorf("%s requires authentication in an unsupported way: it must be Basic, or Bearer with a token and a realm by https", g.host)
}

// refused returns an error for the status of a response, with advice.
func (g *repository) refused(host string, status int) error {
	advice := ""
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		advice = ": it is private, or not there; " + g.credential.advice()
	case http.StatusNotFound:
		advice = ": the image is not there, or not public; check its name, or name the command in the pod"
	case http.StatusTooManyRequests:
		advice = ": too many requests; credentials may raise the limit (--registry-config), or name the command in the pod"
	}
	return fmt.Errorf("%s answered %d %s%s", host, status, http.StatusText(status), advice)
}

// maxRedirects is the maximum number of redirects. It is enough for registries that store blobs on other hosts.
const maxRedirects = 5

// checkRedirect permits redirects, except from TLS to plain HTTP and for requests that contain a secret. A redirect
// to another host is followed without credentials.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%s redirects more than %d times", first.Host, maxRedirects)
	case req.URL.Scheme != "https" && (req.URL.Scheme != "http" || first.Scheme == "https"):
		return fmt.Errorf("%s redirects from TLS to %s", first.Host, req.URL.Scheme)
	case req.Method == http.MethodPost:
		return fmt.Errorf("%s redirects a request that contains a secret", first.Host)
	}
	req.Header.Del("Referer")
	if req.URL.Host != first.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

func (c credential) authenticator() authn.Authenticator {
	if c == (credential{host: c.host, file: c.file, helper: c.helper}) {
		return authn.Anonymous
	}
	return authn.FromConfig(authn.AuthConfig{Username: c.user, Password: c.password, IdentityToken: c.refresh, RegistryToken: c.bearer})
}
