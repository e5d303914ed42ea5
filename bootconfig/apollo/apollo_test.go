package apollo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/bootconfig"
)

// fake is a config service as described on Apollo's page "client guide for other languages". The tests do not use
// the real service, because no package registry provides it.
type fake struct {
	t       *testing.T
	secret  bool
	mu      sync.Mutex
	release int
	config  map[string]string
	changed chan struct{}
	held    chan struct{} // receives a value when the fake holds a request
}

func serve(t *testing.T, secret bool) (*fake, string) {
	t.Helper()
	f := &fake{t: t, secret: secret, changed: make(chan struct{}), held: make(chan struct{}, 100)}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func (f *fake) put(config map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release++
	f.config = config
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if signed := strings.HasPrefix(r.Header.Get("Authorization"), "Apollo shop:") && r.Header.Get("Timestamp") != ""; signed != f.secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/notifications/v2" {
		f.notify(w, r)
		return
	}
	namespace, ok := strings.CutPrefix(r.URL.Path, "/configs/shop/default/")
	switch {
	case !ok || f.config == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Query().Get("releaseKey") == fmt.Sprint("release-", f.release):
		w.WriteHeader(http.StatusNotModified)
	default:
		json.NewEncoder(w).Encode(map[string]any{
			"appId": "shop", "cluster": "default", "namespaceName": namespace, "configurations": f.config, "releaseKey": fmt.Sprint("release-", f.release),
		})
	}
}

func (f *fake) notify(w http.ResponseWriter, r *http.Request) {
	var known []struct {
		NamespaceName  string
		NotificationID int
	}
	if err := json.Unmarshal([]byte(r.URL.Query().Get("notifications")), &known); err != nil || len(known) != 1 || r.URL.Query().Get("appId") != "shop" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for f.release == known[0].NotificationID {
		changed := f.changed
		f.mu.Unlock()
		f.held <- struct{}{}
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		f.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
	json.NewEncoder(w).Encode([]map[string]any{{"namespaceName": known[0].NamespaceName, "notificationId": f.release, "messages": map[string]any{}}})
}

func TestANamespaceOfApollo(t *testing.T) {
	tests := map[string]struct {
		namespace, secret string
		one, two          map[string]string
		want              []string
	}{
		"properties":         {"", "", map[string]string{"a": "1"}, map[string]string{"a": "<2>"}, []string{`{"a":"1"}`, `{"a":"\u003c2\u003e"}`}},
		"a text, and signed": {"settings.yaml", "s3cret", map[string]string{"content": "a: 1"}, map[string]string{"content": "a: 2"}, []string{"a: 1", "a: 2"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, address := serve(t, tt.secret != "")
			p, err := New(Options{Server: address, AppID: "shop", Namespace: tt.namespace, Secret: tt.secret})
			if err != nil {
				t.Fatal(err)
			}
			if s := fmt.Sprintf("%v %+v %#v", p, p, p); strings.Contains(s, "s3cret") {
				t.Errorf("the secret is shown: %s", s)
			}
			if _, err := p.Fetch(t.Context(), bootconfig.Request{MaxSize: 1000}); err == nil || !strings.Contains(err.Error(), "404") {
				t.Errorf("before it exists: %v", err)
			}
			f.put(tt.one)
			first, err := p.Fetch(t.Context(), bootconfig.Request{MaxSize: 1000})
			if err != nil || string(first.Data) != tt.want[0] || first.Version != "release-1" {
				t.Fatalf("%+v %q, %v", first, first.Data, err)
			}
			known := bootconfig.Request{Version: first.Version, MaxSize: 1000}
			if _, err := p.Fetch(t.Context(), known); !errors.Is(err, bootconfig.ErrUnchanged) {
				t.Errorf("again: %v", err)
			}
			known.Wait = 50 * time.Millisecond
			if _, err := p.Fetch(t.Context(), known); !errors.Is(err, bootconfig.ErrUnchanged) {
				t.Errorf("held: %v", err)
			}
			for len(f.held) > 0 {
				<-f.held
			}
			known.Wait = time.Minute
			go func() { <-f.held; f.put(tt.two) }()
			second, err := p.Fetch(t.Context(), known)
			if err != nil || string(second.Data) != tt.want[1] {
				t.Errorf("after the change: %q, %v", second.Data, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := p.Fetch(ctx, known); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		})
	}
}

func TestWrongOptionsOfApollo(t *testing.T) {
	for name, o := range map[string]Options{ // any order: the subtests are independent
		"no server":     {AppID: "shop"},
		"no app":        {Server: "http://apollo.example"},
		"no address":    {Server: "apollo.example:8080", AppID: "shop"},
		"with a query":  {Server: "http://apollo.example/?a=b", AppID: "shop"},
		"with password": {Server: "http://a:b@apollo.example/", AppID: "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(o); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{`{"configurations":{"content":"a"},"releaseKey":"1"}`, `{"configurations":{}}`, `{}`, `null`, `[`, ``} {
		f.Add([]byte(s), "a.json")
		f.Add([]byte(s), "application")
	}
	f.Fuzz(func(t *testing.T, answer []byte, namespace string) {
		_, data, err := parseConfig(answer, namespace)
		if err == nil && data == nil {
			t.Error("neither a document nor an error")
		}
	})
}
