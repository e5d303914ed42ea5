// Package apollo fetches documents from Apollo, for package bootconfig, through the HTTP API that
// Apollo publishes for clients in other languages: configs, and notifications/v2 for the long poll.
//
// It does not use Apollo's client for Go, because that starts goroutines that cannot be stopped, and answers from
// its own cache without saying how old the answer is. This package needs only the standard library. It belongs to
// the module of bootconfig and has the same versions.
package apollo

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/bootconfig"
)

// Options of [New]. The zero value of a field means its default.
type Options struct {
	Server    string // the config service, such as "http://apollo-config:8080"; required
	AppID     string // required
	Cluster   string // default: "default"
	Namespace string // default: "application"
	// Secret is the app's access key. It signs requests and is never sent.
	Secret string
	// Transport is used like bootconfig.HTTPOptions.Transport.
	Transport http.RoundTripper
}

// A Provider fetches one namespace. Create it with [New].
//
// If the name of a namespace ends with a format, as settings.yaml does, the document is the text of the
// namespace. Any other namespace is a set of properties; its document is a JSON object of keys and strings.
type Provider struct {
	o      Options
	server *url.URL
	known  int64 // ID of the newest notification whose document was fetched; -1 at first
}

// New returns a provider, or an error that names an invalid option.
func New(o Options) (*Provider, error) {
	o.Cluster = cmp.Or(o.Cluster, "default")
	o.Namespace = cmp.Or(o.Namespace, "application")
	if o.AppID == "" {
		return nil, errors.New("the provider of Apollo has no AppID")
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	p := &Provider{o: o, known: -1}
	if _, err := bootconfig.NewHTTP(o.Server, bootconfig.HTTPOptions{}); err != nil {
		return nil, fmt.Errorf("the server of Apollo: %w", err)
	}
	u, err := url.Parse(o.Server)
	if err != nil || u.RawQuery != "" {
		return nil, errors.New("the server of Apollo must be an address without a query")
	}
	p.server = u
	return p, nil
}

// String returns "apollo:APP/CLUSTER/NAMESPACE".
func (p *Provider) String() string {
	return "apollo:" + p.o.AppID + "/" + p.o.Cluster + "/" + p.o.Namespace
}

// GoString returns String(), so that %#v shows no secret.
func (p *Provider) GoString() string { return p.String() }

// Fetch implements [bootconfig.Provider]. The version is Apollo's release key.
func (p *Provider) Fetch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	if r.Wait <= 0 || r.Version == "" {
		return p.config(ctx, r)
	}
	over, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	for {
		id, err := p.notification(over)
		switch {
		case ctx.Err() == nil && over.Err() != nil, errors.Is(err, bootconfig.ErrUnchanged):
			return bootconfig.Document{}, bootconfig.ErrUnchanged
		case err != nil:
			return bootconfig.Document{}, err
		}
		d, err := p.config(ctx, r)
		first := p.known == -1
		if err == nil || errors.Is(err, bootconfig.ErrUnchanged) {
			p.known = id
		}
		// The first notification comes at once and describes the current state, so it does not mean that the
		// document has changed.
		if !first || !errors.Is(err, bootconfig.ErrUnchanged) {
			return d, err
		}
	}
}

// config fetches the document. It returns bootconfig.ErrUnchanged if the release is still r.Version.
func (p *Provider) config(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	query := url.Values{}
	if r.Version != "" {
		query.Set("releaseKey", r.Version)
	}
	// In JSON an escaped byte may take six bytes.
	answer, err := p.get(ctx, query, 6*r.MaxSize+64<<10, "configs", p.o.AppID, p.o.Cluster, p.o.Namespace)
	if err != nil {
		return bootconfig.Document{}, err
	}
	release, data, err := parseConfig(answer, p.o.Namespace)
	if err != nil {
		return bootconfig.Document{}, err
	}
	if release == r.Version && release != "" {
		return bootconfig.Document{}, bootconfig.ErrUnchanged
	}
	return bootconfig.Document{Version: release, Data: data}, nil
}

var formats = []string{".json", ".yaml", ".yml", ".xml", ".txt"}

// parseConfig parses a response of Apollo's API configs/. release is the release key.
func parseConfig(answer []byte, namespace string) (release string, data []byte, err error) {
	var config struct {
		Configurations map[string]string `json:"configurations"`
		ReleaseKey     string            `json:"releaseKey"`
	}
	if err := json.Unmarshal(answer, &config); err != nil {
		return "", nil, fmt.Errorf("reading Apollo's answer: %w", err)
	}
	if config.Configurations == nil {
		return "", nil, errors.New("the answer has no configurations")
	}
	if slices.ContainsFunc(formats, func(f string) bool { return strings.HasSuffix(namespace, f) }) {
		content, ok := config.Configurations["content"]
		if !ok {
			return "", nil, errors.New("the answer has no content, which a namespace with a format has")
		}
		return config.ReleaseKey, []byte(content), nil
	}
	data, err = json.Marshal(config.Configurations)
	return config.ReleaseKey, data, err
}

// notification waits for a notification that is newer than the known one. Apollo holds the request for
// up to a minute.
func (p *Provider) notification(ctx context.Context) (int64, error) {
	type notification struct {
		Namespace string `json:"namespaceName"`
		ID        int64  `json:"notificationId"`
	}
	known, err := json.Marshal([]notification{{p.o.Namespace, p.known}})
	if err != nil {
		return 0, err
	}
	answer, err := p.get(ctx, url.Values{"appId": {p.o.AppID}, "cluster": {p.o.Cluster}, "notifications": {string(known)}}, 64<<10, "notifications", "v2")
	if err != nil {
		return 0, err
	}
	var news []notification
	if err := json.Unmarshal(answer, &news); err != nil {
		return 0, fmt.Errorf("reading Apollo's notifications: %w", err)
	}
	for _, n := range news {
		if n.Namespace == p.o.Namespace {
			return n.ID, nil
		}
	}
	return 0, errors.New("the notifications are of other namespaces")
}

// get sends a request through bootconfig.HTTP, with its limits and checks; status 304 becomes
// bootconfig.ErrUnchanged.
func (p *Provider) get(ctx context.Context, query url.Values, limit int64, path ...string) ([]byte, error) {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	u := p.server.JoinPath(path...)
	u.RawQuery = query.Encode()
	h, err := bootconfig.NewHTTP(u.String(), bootconfig.HTTPOptions{
		Transport: p.o.Transport, Authorize: p.sign,
		PlaintextCredentials: true, // a request contains its own signature, but not the secret
	})
	if err != nil {
		return nil, err
	}
	d, err := h.Fetch(ctx, bootconfig.Request{MaxSize: limit})
	return d.Data, err
}

// sign adds Apollo's signature: HMAC-SHA1 of the time in milliseconds and the path with the query.
func (p *Provider) sign(r *http.Request) error {
	if p.o.Secret == "" {
		return nil
	}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	mac := hmac.New(sha1.New, []byte(p.o.Secret))
	mac.Write([]byte(now + "\n" + r.URL.RequestURI()))
	r.Header.Set("Timestamp", now)
	r.Header.Set("Authorization", "Apollo "+p.o.AppID+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return nil
}
