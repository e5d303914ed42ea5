package controlplane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"outrider.dev/internal/core/controlplane/kube"
	held "outrider.dev/test/port"
	"outrider.dev/test/process"
)

const unreachable = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
`

// While the Secret with the authority cannot be read, the control plane runs and its readiness reports
// the reason; its other ports do not answer yet.
func TestTheAuthorityIsWaitedFor(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(unreachable), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster, err := kube.Connect(kube.Options{Kubeconfig: config})
	if err != nil {
		t.Fatal(err)
	}
	address := held.Hold(t).String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ended error
	running.Go(func() {
		ended = Run(ctx, Options{Folder: t.TempDir(), Cluster: cluster, CASecret: "outrider-ca", Listen: "127.0.0.1:0", HTTP: address, Webhook: "127.0.0.1:0",
			Ready: func(Addresses) { t.Error("it serves without an authority") }})
	})
	get := func(path string) (int, string) {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(text)
	}
	want := func(path string, status int, text string) {
		t.Helper()
		process.Retry(t, func() error {
			code, body := get(path)
			if code == status && strings.Contains(body, text) {
				return nil
			}
			return fmt.Errorf("%s: %d, %s; want %d and %q", path, code, body, status, text)
		})
	}
	want("/live", http.StatusOK, "live")
	want("/ready", http.StatusServiceUnavailable, "authority: reading the authority's files: reading the Secret outrider-system/outrider-ca: ")
	want("/ready", http.StatusServiceUnavailable, "connection refused")
	want("/metrics", http.StatusNotFound, "")
	cancel()
	running.Wait()
	if ended != nil {
		t.Errorf("Run = %v", ended)
	}
}

func TestASecretNeedsACluster(t *testing.T) {
	err := Run(t.Context(), Options{Folder: t.TempDir(), CASecret: "outrider-ca"})
	if err == nil || err.Error() != "CASecret: a Secret needs a cluster" {
		t.Errorf("Run = %v", err)
	}
}
