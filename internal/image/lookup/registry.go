package lookup

import (
	"cmp"
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
)

// A repository of a registry is asked by the protocol of OCI distribution 1.1.
type repository struct {
	r          *Resolver
	host, repo string
	scheme     string
	credential credential

	mu            sync.Mutex
	authorization string // what the first request was told to bring; the others follow it
}

// hub is where the images of docker.io are.
const hub = "registry-1.docker.io"

func (r *Resolver) open(name reference.Named) (*repository, error) {
	g := &repository{r: r, host: reference.Domain(name), repo: reference.Path(name), scheme: "https"}
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

// fetch gets a manifest or a blob. If the registry wants to know who asks, it is told once.
func (g *repository) fetch(ctx context.Context, method, what string) ([]byte, http.Header, error) {
	address := url.URL{Scheme: g.scheme, Host: g.host, Path: "/v2/" + g.repo + "/" + what}
	for {
		req, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(what, "manifests/") {
			req.Header.Set("Accept", strings.Join(slices.Concat(indexTypes, manifestTypes), ", "))
		}
		sent := g.authorized("")
		if sent != "" {
			req.Header.Set("Authorization", sent)
		}
		body, res, err := g.r.do(req, mostBytes)
		switch {
		case err != nil:
			return nil, nil, err
		case res.StatusCode == http.StatusOK:
			return body, res.Header, nil
		case res.StatusCode == http.StatusUnauthorized && sent == "":
			word, err := g.authorize(ctx, res.Header.Values("WWW-Authenticate"))
			if err != nil {
				return nil, nil, err
			}
			g.authorized(word)
		default:
			return nil, nil, g.refused(res)
		}
	}
}

// authorized returns what requests bring, which becomes word if there is one.
func (g *repository) authorized(word string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.authorization = cmp.Or(word, g.authorization)
	return g.authorization
}

// refused is what an answer means, and what would help. The registry's own words are left
// out: whose they are nobody knows.
func (g *repository) refused(res *http.Response) error {
	advice := ""
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		advice = ": it is private, or not there; " + g.credential.advice()
	case http.StatusNotFound:
		advice = ": the registry does not have it, or not for everybody; look at its name, or name the command in the pod"
	case http.StatusTooManyRequests:
		advice = ": too many requests; credentials may raise the limit (--registry-config), or name the command in the pod"
	}
	return fmt.Errorf("%s answered %d %s%s", res.Request.URL.Host, res.StatusCode, http.StatusText(res.StatusCode), advice)
}

// do makes a request and reads its answer, up to a bound. Errors have no address in them
// but the host: a redirect's may have a signature that opens the place.
func (r *Resolver) do(req *http.Request, most int64) ([]byte, *http.Response, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-req.Context().Done():
		return nil, nil, context.Cause(req.Context())
	}
	req.Header.Set("User-Agent", "outrider")
	res, err := r.client.Do(req)
	if err != nil {
		return nil, nil, r.failure(req, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, res, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	switch {
	case err != nil:
		return nil, nil, r.failure(req, err)
	case int64(len(body)) > most:
		return nil, nil, fmt.Errorf("%s sent more than %d bytes", res.Request.URL.Host, most)
	}
	return body, res, nil
}

func (r *Resolver) failure(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return context.Cause(req.Context())
	}
	var at *url.Error
	for errors.As(err, &at) {
		err = at.Err
	}
	var plain *net.OpError
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return fmt.Errorf("%s speaks plain HTTP: name it by --insecure-registry if that is meant", req.URL.Host)
	}
	if errors.As(err, &plain) && plain.Op == "dial" {
		return fmt.Errorf("%s cannot be reached: %w", req.URL.Host, err)
	}
	return fmt.Errorf("asking %s: %w", req.URL.Host, err)
}

// mostRedirects are enough for a registry with its storage elsewhere.
const mostRedirects = 5

// redirect lets a registry send us on, but not with what only it should see, and not from
// TLS into the open.
func (r *Resolver) redirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > mostRedirects:
		return fmt.Errorf("%s redirects more than %d times", first.Host, mostRedirects)
	case req.URL.Scheme != "https" && (req.URL.Scheme != "http" || first.Scheme == "https"):
		return fmt.Errorf("%s redirects from TLS to %s", first.Host, req.URL.Scheme)
	case req.Method == http.MethodPost:
		return fmt.Errorf("%s redirects a request that has a secret in it", first.Host)
	}
	req.Header.Del("Referer")
	if req.URL.Host != first.Host {
		req.Header.Del("Authorization")
	}
	return nil
}
