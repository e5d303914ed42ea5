// Package consul fetches documents from Consul's key/value store, for package bootconfig, with Consul's
// own client.
//
// A long poll is one of Consul's blocking queries, so a change is in use within seconds. Configure the address,
// TLS, the token and the namespace in the client. The module is versioned as package bootconfig describes.
package consul

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	"outrider.dev/bootconfig"
)

// A Provider fetches the value of one key of Consul. Create it with [New].
type Provider struct {
	kv       *api.KV
	key      string
	answered bool // the last call succeeded
}

// New returns a provider for the value of a key, such as "shop/settings". The key need not exist yet.
func New(client *api.Client, key string) (*Provider, error) {
	switch {
	case client == nil:
		return nil, errors.New("the provider of Consul has no client")
	case key == "" || strings.HasPrefix(key, "/"):
		return nil, fmt.Errorf("the key of Consul is %q; it must not be empty or begin with a slash", key)
	}
	return &Provider{kv: client.KV(), key: key}, nil
}

// String returns "consul:" and the key.
func (p *Provider) String() string { return "consul:" + p.key }

// Fetch implements [bootconfig.Provider]. The version is Consul's index of the key.
func (p *Provider) Fetch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	for {
		// After a loss of data, Consul starts with low indexes. A query with an older, higher index
		// then blocks until it times out, whatever the key holds. So the first call, and a call after a
		// failure, do not block.
		wait := r.Wait
		if !p.answered {
			wait = 0
		}
		d, err := p.get(ctx, r.Version, wait)
		unchanged := errors.Is(err, bootconfig.ErrUnchanged)
		p.answered = err == nil || unchanged
		if !unchanged || wait == r.Wait {
			return d, err
		}
	}
}

func (p *Provider) get(ctx context.Context, known string, wait time.Duration) (bootconfig.Document, error) {
	query := &api.QueryOptions{}
	if index, err := strconv.ParseUint(known, 10, 64); err == nil && index > 0 && wait > 0 {
		// Consul adds up to a sixteenth to the wait time, so the query asks for less.
		query.WaitIndex, query.WaitTime = index, (wait * 16 / 17).Truncate(time.Millisecond)
	}
	pair, meta, err := p.kv.Get(p.key, query.WithContext(ctx))
	if err != nil {
		return bootconfig.Document{}, withoutAddress(err)
	}
	if pair == nil {
		return bootconfig.Document{}, errors.New("the key does not exist")
	}
	// Consul's documentation says that a lower index than before, as after a restore, is a new version, and that
	// 0 is not a valid index.
	version := ""
	if meta.LastIndex > 0 {
		version = strconv.FormatUint(meta.LastIndex, 10)
	}
	if version != "" && version == known {
		return bootconfig.Document{}, bootconfig.ErrUnchanged
	}
	return bootconfig.Document{Version: version, Data: pair.Value}, nil
}

// withoutAddress removes the URL from an error of net/http.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
