package consul

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"outrider.dev/bootconfig"
)

// The suite runs on a fake, or on a real Consul: go test -consul 127.0.0.1:8500, of which it
// changes the keys below bootconfig-test/.
var address = flag.String("consul", "", "host:port of a real Consul; default: a fake of its key/value API")

// fake is what Consul's pages say of GET /v1/kv/KEY: index, blocking queries, 404 with an index.
type fake struct {
	mu      sync.Mutex
	index   uint64
	keys    map[string]api.KVPair
	changed chan struct{}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		value, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		f.change(func() { f.keys[key] = api.KVPair{Key: key, Value: value, ModifyIndex: f.index} })
		fmt.Fprint(w, "true")
	case http.MethodDelete:
		f.change(func() { delete(f.keys, key) })
		fmt.Fprint(w, "true")
	default:
		f.get(w, r, key)
	}
}

func (f *fake) change(apply func()) {
	f.index++
	apply()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) get(w http.ResponseWriter, r *http.Request, key string) {
	if index, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64); index > 0 {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		over := time.After(wait)
		for f.at(key) <= index {
			changed := f.changed
			f.mu.Unlock()
			select {
			case <-changed:
			case <-over:
				index = 0
			case <-r.Context().Done():
				index = 0
			}
			f.mu.Lock()
			if index == 0 {
				break
			}
		}
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(f.at(key), 10))
	pair, ok := f.keys[key]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	json.NewEncoder(w).Encode([]map[string]any{{
		"Key": key, "Value": base64.StdEncoding.EncodeToString(pair.Value), "ModifyIndex": pair.ModifyIndex, "CreateIndex": 1, "LockIndex": 0, "Flags": 0,
	}})
}

func (f *fake) at(key string) uint64 {
	if pair, ok := f.keys[key]; ok {
		return pair.ModifyIndex
	}
	return f.index
}

func client(t *testing.T) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address = *address
	if *address == "" {
		server := httptest.NewServer(&fake{index: 10, keys: map[string]api.KVPair{}, changed: make(chan struct{})})
		t.Cleanup(server.Close)
		config.Address = server.Listener.Addr().String()
	}
	c, err := api.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t *testing.T, c *api.Client, key, value string) {
	t.Helper()
	if _, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyOfConsul(t *testing.T) {
	c := client(t)
	const key = "bootconfig-test/settings"
	if _, err := c.KV().Delete(key, nil); err != nil {
		t.Fatal(err)
	}
	p, err := New(c, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("before the key exists: %v", err)
	}
	put(t, c, key, "one")
	first, err := p.Fetch(t.Context(), bootconfig.Request{})
	if err != nil || string(first.Data) != "one" || first.Version == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{Version: first.Version}); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("again: %v", err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{Version: first.Version, Wait: 50 * time.Millisecond}); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("held: %v", err)
	}
	// Another key changes while the query is held: it goes on.
	fetched := make(chan bootconfig.Document, 1)
	go func() {
		d, err := p.Fetch(context.Background(), bootconfig.Request{Version: first.Version, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		fetched <- d
	}()
	put(t, c, "bootconfig-test/other", "x")
	put(t, c, key, "two")
	if d := <-fetched; string(d.Data) != "two" {
		t.Errorf("after the change: %+v", d)
	}
	// A version of before a restore of Consul, or of another provider.
	for _, version := range []string{"1", "0", "sha256:x", "-1"} {
		if d, err := p.Fetch(t.Context(), bootconfig.Request{Version: version}); err != nil || string(d.Data) != "two" {
			t.Errorf("with version %q: %+v, %v", version, d, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Fetch(ctx, bootconfig.Request{}); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "/v1/kv") {
		t.Errorf("cancelled: %v", err)
	}
}

func TestTheWholeWayFromConsul(t *testing.T) {
	c := client(t)
	const key = "bootconfig-test/level"
	put(t, c, key, `{"level":"info"}`)
	p, err := New(c, key)
	if err != nil {
		t.Fatal(err)
	}
	type settings struct{ Level string }
	config, err := bootconfig.Open(t.Context(), bootconfig.Options[settings]{Provider: p, Refresh: time.Second, LongPoll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	levels := make(chan string, 10)
	config.OnChange(func(s bootconfig.Snapshot[settings]) {
		if s.Value.Level != "" {
			levels <- s.Value.Level
		}
	})
	if got := <-levels; got != "info" {
		t.Errorf("level %q", got)
	}
	put(t, c, key, `{"level":"debug"}`)
	if got := <-levels; got != "debug" {
		t.Errorf("level %q", got)
	}
}

func TestWrongOptionsOfConsul(t *testing.T) {
	if _, err := New(nil, "a"); err == nil {
		t.Error("no client is taken")
	}
	for _, key := range []string{"", "/a"} {
		if _, err := New(client(t), key); err == nil {
			t.Errorf("the key %q is taken", key)
		}
	}
}
