package kubenode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"outrider.dev/internal/base/contract"
)

// server stores objects by path, and merges patches as the API server does.
type server struct {
	mu      sync.Mutex
	objects map[string]string
	version int
	tokens  []string
	calls   []string
	before  func(path string) // called before a patch is applied
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	s.calls = append(s.calls, r.Method)
	object, ok := s.objects[r.URL.Path]
	if !ok {
		http.Error(w, `{"message":"not found"}`, http.StatusNotFound)
		return
	}
	body, _ := io.ReadAll(r.Body)
	switch r.Method {
	case http.MethodPatch:
		if s.before != nil {
			s.before(r.URL.Path)
			object = s.objects[r.URL.Path]
		}
		var patch struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal(body, &patch); err != nil || patch.Metadata.ResourceVersion != versionOf(object) {
			http.Error(w, `{"message":"conflict"}`, http.StatusConflict)
			return
		}
		merged, err := jsonpatch.MergePatch([]byte(object), body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.put(r.URL.Path, string(merged))
	case http.MethodDelete:
		s.objects[r.URL.Path] = `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	}
	_, _ = io.WriteString(w, s.objects[r.URL.Path])
}

func versionOf(object string) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal([]byte(object), &o)
	return o.Metadata.ResourceVersion
}

func (s *server) put(path, object string) {
	s.version++
	merged, _ := jsonpatch.MergePatch([]byte(object), []byte(`{"metadata":{"resourceVersion":"`+strconv.Itoa(s.version)+`"}}`))
	s.objects[path] = string(merged)
}

const (
	nodePath = "/api/v1/nodes/worker-1"
	setPath  = "/apis/apps/v1/namespaces/outrider-system/daemonsets/outrider-node"
)

func newClient(t *testing.T, s *server) *Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Client{Server: h.URL, TokenFile: token, Node: "worker-1", HTTP: h.Client()}
}

// without removes fields that change with each write.
func without(t *testing.T, object string) string {
	t.Helper()
	out, err := jsonpatch.MergePatch([]byte(object), []byte(`{"metadata":{"resourceVersion":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestLabelAndTaint(t *testing.T) {
	const others = `{"effect":"NoExecute","key":"maintenance","timeAdded":"2026-01-01T00:00:00Z","value":"x"}`
	const plain = `{"metadata":{"labels":{"zone":"a"}},"spec":{"taints":[` + others + `]},"status":{}}`
	s := &server{objects: map[string]string{}}
	s.put(nodePath, plain)
	c := newClient(t, s)
	served := `{"metadata":{"labels":{"outrider.dev/node":"installed","outrider.dev/node-validator":"on","zone":"a"}},"spec":{"taints":[` + others + `]},"status":{}}`
	tainted := `{"metadata":{"labels":{"zone":"a"}},"spec":{"taints":[` + others + `,{"effect":"NoSchedule","key":"outrider.dev/node-not-serving"}]},"status":{}}`
	down := strings.Replace(tainted, `"labels":{`, `"labels":{"outrider.dev/node":"installed","outrider.dev/node-validator":"on",`, 1)
	serves := func(ctx context.Context) error { return c.Serves(ctx, contract.ValidatorOn) }
	for _, step := range []struct {
		name  string
		call  func(context.Context) error
		want  string
		calls string
	}{
		{"has never served", func(ctx context.Context) error { return c.ServesNot(ctx, true) }, plain, "GET"},
		{"serves", serves, served, "GET PATCH"},
		{"again", serves, served, "GET"},
		{"the runtime has another configuration", func(ctx context.Context) error { return c.Serves(ctx, contract.ValidatorOff) }, strings.Replace(served, `"on"`, `"off"`, 1), "GET PATCH"},
		{"the validator is on again", serves, served, "GET PATCH"},
		{"serves no more", func(ctx context.Context) error { return c.ServesNot(ctx, true) }, down, "GET PATCH"},
		{"serves no more, without a taint", func(ctx context.Context) error { return c.ServesNot(ctx, false) }, served, "GET PATCH"},
		{"has gone", c.Left, plain, "GET PATCH"},
	} {
		s.calls = nil
		if err := step.call(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, without(t, s.objects[nodePath])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if got := strings.Join(s.calls, " "); got != step.calls {
			t.Errorf("%s: %s, want %s", step.name, got, step.calls)
		}
	}
}

// A taint that another controller adds between reading and writing is preserved. A Node that changes at
// each attempt finally causes an error.
func TestOthersWriteTheNode(t *testing.T) {
	s := &server{objects: map[string]string{}}
	s.put(nodePath, `{"metadata":{"labels":{"outrider.dev/node":"installed"}},"spec":{}}`)
	c := newClient(t, s)
	once := sync.OnceFunc(func() {
		s.put(nodePath, `{"metadata":{"labels":{"outrider.dev/node":"installed"}},"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"}]}}`)
	})
	s.before = func(string) { once() }
	if err := c.ServesNot(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := s.objects[nodePath]; !strings.Contains(got, "theirs") || !strings.Contains(got, contract.NodeTaint) {
		t.Errorf("the Node is %s", got)
	}
	s.before = func(path string) { s.put(path, s.objects[path]) }
	if err := c.Serves(t.Context(), contract.ValidatorOn); !Is(err, http.StatusConflict) {
		t.Errorf("a Node that changes each time: %v", err)
	}
}

func TestTokensRotate(t *testing.T) {
	s := &server{objects: map[string]string{}}
	c := newClient(t, s)
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(c.TokenFile, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.Serves(t.Context(), contract.ValidatorOn); !Is(err, http.StatusNotFound) {
			t.Errorf("without a Node: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"Bearer one", "Bearer two"}, s.tokens); diff != "" {
		t.Error(diff)
	}
}

func TestLeaving(t *testing.T) {
	s := &server{objects: map[string]string{setPath: `{"metadata":{}}`}}
	c := newClient(t, s)
	leaving := func() bool {
		t.Helper()
		is, err := c.Leaving(t.Context(), "outrider-system", "outrider-node")
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	if leaving() {
		t.Error("a DaemonSet that is there is leaving")
	}
	left := make(chan error)
	go func() { left <- c.Leave(t.Context(), "outrider-system", "outrider-node", time.Millisecond) }()
	for !leaving() {
	}
	select {
	case err := <-left:
		t.Fatalf("while its pods end, Leave returns %v", err)
	default:
	}
	s.mu.Lock()
	delete(s.objects, setPath)
	s.mu.Unlock()
	if err := <-left; err != nil || !leaving() {
		t.Errorf("afterwards: %v", err)
	}
	if err := c.Leave(t.Context(), "outrider-system", "outrider-node", time.Millisecond); err != nil {
		t.Errorf("without a DaemonSet: %v", err)
	}
	s.objects[setPath] = `{}`
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // time limit: the test lets it pass
	defer cancel()
	if err := c.Leave(ctx, "outrider-system", "outrider-node", time.Millisecond); err == nil {
		t.Error("pods that never end")
	}
}

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	if _, err := InCluster("", "", dir, "n"); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") {
		t.Errorf("not in a pod: %v", err)
	}
	if err := os.WriteFile(dir+"/ca.crt", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := InCluster("::1", "443", dir, "n"); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("no certificate: %v", err)
	}
}

// Taints of others are written as they were read.
func FuzzTaints(f *testing.F) {
	f.Add(`[{"key":"a","effect":"NoExecute","timeAdded":"x"},{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		var taints []taint
		if json.Unmarshal([]byte(text), &taints) != nil {
			return
		}
		back, err := json.Marshal(taints)
		var want, got any
		if err := errors.Join(err, json.Unmarshal([]byte(text), &want), json.Unmarshal(back, &got)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q is written as %s:\n%s", text, back, diff)
		}
	})
}
