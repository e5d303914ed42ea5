package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"outrider.dev/internal/core/controlplane"
	"outrider.dev/test/process"
)

const proxyStatusMesh = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
`

// connected starts a real outriderd, and a proxy that accepts its clusters and rejects its listeners. It
// returns the address of the HTTP server.
func connected(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "mesh.yaml"), []byte(proxyStatusMesh), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan controlplane.Addresses, 1), make(chan error, 1)
	go func() {
		done <- controlplane.Run(ctx, controlplane.Options{Folder: folder, State: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
			Plaintext: "127.0.0.1:0", Ready: func(a controlplane.Addresses) { ready <- a }})
	}()
	t.Cleanup(func() { cancel(); <-done })
	var at controlplane.Addresses
	select {
	case at = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(at.Plaintext, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	node := &core.Node{Id: "sidecar~10.0.0.1~app-1.shop~shop.svc.cluster.local", Cluster: "app"}
	for kind, names := range map[string][]string{ // any order: each kind has its own answer
		"envoy.config.cluster.v3.Cluster":   {"*", "outbound|80||reviews.shop.svc.cluster.local"},
		"envoy.config.listener.v3.Listener": nil,
	} {
		url := "type.googleapis.com/" + kind
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResourceNamesSubscribe: names}); err != nil {
			t.Fatal(err)
		}
		in, err := stream.Recv()
		for err == nil && in.TypeUrl != url { // endpoints come unasked with the clusters
			in, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		answer := &discovery.DeltaDiscoveryRequest{TypeUrl: in.TypeUrl, ResponseNonce: in.Nonce}
		if strings.Contains(kind, "Listener") {
			answer.ErrorDetail = &status.Status{Code: 13, Message: "cannot bind\n'0.0.0.0:15001'"}
		}
		if err := stream.Send(answer); err != nil {
			t.Fatal(err)
		}
	}
	return "http://" + at.HTTP
}

// command runs outrider in this process.
func command(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestProxyStatusOfARealControlPlane(t *testing.T) {
	at := connected(t)
	var status int
	var out string
	process.Eventually(t, "the proxy's answers", func() bool {
		status, out, _ = command("proxy-status", "--control-plane-http", at)
		return strings.Contains(out, "REJECTED") && strings.Contains(out, "ok") // the answer about clusters may come later
	})
	if status != 1 {
		t.Errorf("status %d, want 1: something was rejected", status)
	}
	for _, want := range []string{"NAME", "app-1.shop", "Cluster", "all", "ok", "Listener", "cannot bind '0.0.0.0:15001'"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if status, out, _ := command("proxy-status", "-o", "json", "--control-plane-http", at); status != 1 || !strings.Contains(out, "cannot bind") {
		t.Errorf("as JSON: status %d, want 1\n%s", status, out)
	}
	for _, pod := range []string{"app-1", "app-1.shop", "sidecar~10.0.0.1~app-1.shop~shop.svc.cluster.local"} {
		status, out, errs := command("proxy-config", pod, "clusters", "--control-plane-http", at)
		if status != 0 || !strings.Contains(out, "reviews.shop.svc.cluster.local") || strings.Contains(out, "Listener") {
			t.Errorf("clusters of %s: status %d, %s\n%s", pod, status, errs, out)
		}
	}
	if status, out, _ := command("proxy-config", "app-1", "listeners", "--control-plane-http", at); status != 0 || !strings.Contains(out, ":15001 OUTBOUND") {
		t.Errorf("listeners: status %d\n%s", status, out)
	}
	if _, _, errs := command("proxy-status", "app-2", "--control-plane-http", at); !strings.Contains(errs, `no proxy "app-2" is connected to outriderd; there are app-1.shop`) {
		t.Errorf("a pod that is not there: %s", errs)
	}
	// The output for a saved response is the same as for a live one.
	kept := filepath.Join(t.TempDir(), "kept.json")
	_, text, _ := command("proxy-config", "app-1", "-o", "json", "--control-plane-http", at)
	if err := os.WriteFile(kept, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, live, _ := command("proxy-config", "app-1", "all", "--control-plane-http", at)
	if _, saved, errs := command("proxy-config", "-f", kept, "all"); saved != live || live == "" {
		t.Errorf("kept: %s\n%s\nlive:\n%s", errs, saved, live)
	}
}

func TestProxyStatusOfAnyServer(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   string
	}{
		"another server":     {404, "404 page not found\n", "answers 404 Not Found: 404 page not found"},
		"forbidden":          {403, "only from the machine itself\n", "hint: without --control-plane-http all replicas"},
		"no list of proxies": {200, "<html>", "not outriderd's list of proxies: invalid character"},
		"a list of another":  {200, `[{"types":1}]`, "not outriderd's list of proxies"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				w.Write([]byte(tt.body))
			}))
			defer s.Close()
			status, _, errs := command("proxy-status", "--control-plane-http", s.URL)
			if status == 0 || !strings.Contains(errs, tt.want) {
				t.Errorf("status %d: %s; want %q", status, errs, tt.want)
			}
		})
	}
}

func FuzzProxyStatus(f *testing.F) {
	f.Add([]byte(`[{"id":"sidecar~1~a.b~c","namespace":"b","since":"2026-01-01T00:00:00Z","types":[{"type":"Cluster","subscribed":["x"],"rejected":{"reason":"no"}}]}]`))
	f.Add([]byte(`[{"type":"Cluster","name":"a","body":{"loadAssignment":{"endpoints":[{"lbEndpoints":[{}]}]}}}]`))
	f.Add([]byte(`[{"type":"Listener","name":"a","body":{"address":{"pipe":{}}}},{"type":"VirtualHost","body":null}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(t.TempDir(), "kept.json")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"proxy-status", "proxy-config"} {
			status, out, errs := command(c, "-f", file)
			if status == 0 && out == "" || status == 2 && !strings.HasPrefix(errs, "outrider: error: ") {
				t.Errorf("%s of %q: status %d, %q, %q", c, raw, status, out, errs)
			}
		}
	})
}
