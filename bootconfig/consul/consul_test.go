package consul

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"outrider.dev/bootconfig"
	"outrider.dev/bootconfig/internal/providertest"
)

var program = flag.String("consul", "../../.cache/configcentres/consul", "path of Consul; make centres builds it")

// fake answers GET /v1/kv/KEY as Consul's documentation describes: with an index, with blocking queries, and with
// an index in 404 too. Like an agent in dev mode, it loses all data when it stops.
type fake struct {
	address string
	server  *httptest.Server

	mu      sync.Mutex
	index   uint64
	keys    map[string]api.KVPair
	changed chan struct{}
}

func (f *fake) start(t *testing.T) {
	ln, err := net.Listen("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.index, f.keys, f.changed = 10, map[string]api.KVPair{}, make(chan struct{})
	f.mu.Unlock()
	f.server = httptest.NewUnstartedServer(f)
	f.server.Listener.Close()
	f.server.Listener = ln
	f.server.Start()
}

func (f *fake) kill(*testing.T) {
	f.server.CloseClientConnections() // ends the blocking queries
	f.server.Close()
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Consul-Token") != providertest.Secret {
		http.Error(w, "ACL not found", http.StatusForbidden)
		return
	}
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

func client(t *testing.T, address, token string) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address, config.Token = address, token
	c, err := api.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func suite(t *testing.T, address string, kill, start func(*testing.T)) {
	provider := func(t *testing.T, name, token string) bootconfig.Provider {
		p, err := New(client(t, address, token), "shop/"+name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	kv := client(t, address, providertest.Secret).KV()
	providertest.Centre{
		Provider: func(t *testing.T, name string) bootconfig.Provider { return provider(t, name, providertest.Secret) },
		Refused: func(t *testing.T, name string) (bootconfig.Provider, string) {
			return provider(t, name, providertest.WrongSecret), "403 (ACL not found)"
		},
		Put: func(name, document string) error {
			_, err := kv.Put(&api.KVPair{Key: "shop/" + name, Value: []byte(document)}, nil)
			return err
		},
		Delete: func(name string) error { _, err := kv.Delete("shop/"+name, nil); return err },
		Kill:   kill, Start: start, Missing: "the key does not exist",
	}.Run(t)
}

func TestAFake(t *testing.T) {
	f := &fake{address: fmt.Sprint("127.0.0.1:", providertest.Port(t))}
	f.start(t)
	t.Cleanup(func() { f.kill(t) })
	suite(t, f.address, f.kill, f.start)
}

// This test uses an agent in dev mode, with access control.
func TestARealAgent(t *testing.T) {
	binary, dir := providertest.Program(t, *program), t.TempDir()
	port := func() string { return strconv.Itoa(providertest.Port(t)) }
	acl := fmt.Sprintf(`{"acl": {"enabled": true, "default_policy": "deny", "tokens": {"initial_management": %q}}}`, providertest.Secret)
	if err := os.WriteFile(filepath.Join(dir, "acl.json"), []byte(acl), 0o600); err != nil {
		t.Fatal(err)
	}
	api := port()
	address := "127.0.0.1:" + api
	kv := client(t, address, providertest.Secret).KV()
	agent := providertest.Start(t, dir, func() error { _, _, err := kv.Get("ready", nil); return err },
		binary, "agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1", "-http-port", api,
		"-server-port", port(), "-serf-lan-port", port(), "-serf-wan-port", "-1", "-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1",
		"-config-file", "acl.json", "-disable-host-node-id", "-log-level", "warn")
	suite(t, address, agent.Kill, agent.Start)
}

func TestErrorsShowNoAddress(t *testing.T) {
	p, err := New(client(t, fmt.Sprint("127.0.0.1:", providertest.Port(t)), providertest.Secret), "shop/settings")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{}); err == nil || strings.Contains(err.Error(), "/v1/kv") {
		t.Errorf("%v", err)
	}
}

func TestWrongOptionsOfConsul(t *testing.T) {
	if _, err := New(nil, "a"); err == nil {
		t.Error("no client is taken")
	}
	for _, key := range []string{"", "/a"} {
		if _, err := New(client(t, "127.0.0.1:1", ""), key); err == nil {
			t.Errorf("the key %q is taken", key)
		}
	}
}
