package webhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// While one root replaces another, a client that trusts both never fails. A client that trusts only the old
// root fails as soon as the new one signs, and not earlier. Sessions are not resumed, because a resumed
// session would use the old certificate.
func TestTheRootIsExchanged(t *testing.T) {
	dir, nextDir := t.TempDir(), t.TempDir()
	a, next := authority(t, dir), authority(t, nextDir)
	url := "https://" + serve(t, New(Options{Namespaces: enabled}), a) + Path
	file := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(nextDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	both := slices.Concat(a.RootsPEM(), next.RootsPEM())
	clients := map[string]*http.Client{"old": client(t, a.RootsPEM(), "http/1.1"), "both": client(t, both, "http/1.1"), "next": client(t, next.RootsPEM(), "http/1.1")}
	body := reviewOf("u", "shop", podJSON(t, plain))
	for _, step := range []struct {
		what  string
		files map[string][]byte
		fails string
	}{
		{"one root", nil, "next"},
		{"two roots", map[string][]byte{"root-cert.pem": both}, "next"},
		{"the next one signs", map[string][]byte{"ca-key.pem": file("ca-key.pem"), "ca-cert.pem": file("ca-cert.pem")}, "old"},
		{"the old one is removed", map[string][]byte{"root-cert.pem": next.RootsPEM()}, "old"},
	} {
		for name, data := range step.files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, c := range clients {
			c.CloseIdleConnections()
			r, err := c.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				if name != step.fails {
					t.Errorf("%s: a client with %s: %v", step.what, name, err)
				}
				continue
			}
			if got := read(t, r); name == step.fails || r.TLS.DidResume || !got.response.Allowed || len(got.response.Patch) == 0 {
				t.Errorf("%s: a client with %s: resumed %v, %+v", step.what, name, r.TLS.DidResume, got)
			}
		}
	}
}

// Clients that send half of a review, or nothing, do not delay other clients.
func TestSlowClientsDelayNoOthers(t *testing.T) {
	a := authority(t, t.TempDir())
	w := New(Options{Namespaces: enabled, Limits: Limits{Concurrency: 1, Timeout: 10 * time.Second}})
	address := serve(t, w, a)
	var hanging []net.Conn
	for i := range 30 {
		conn, err := tls.Dial("tcp", address, client(t, a.RootsPEM(), "http/1.1").Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			fmt.Fprintf(conn, "POST /inject HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"kind\":")
		}
		hanging = append(hanging, conn)
	}
	c := client(t, a.RootsPEM(), "http/1.1")
	for range 20 {
		if got := post(t, c, "https://"+address+Path, reviewOf("u", "shop", podJSON(t, plain))); !got.response.Allowed {
			t.Fatalf("%+v", got)
		}
	}
	hanging[0].SetReadDeadline(time.Now().Add(time.Minute))
	line := make([]byte, 12)
	if _, err := io.ReadFull(hanging[0], line); err != nil || string(line) != "HTTP/1.1 408" {
		t.Errorf("half a body got %q, %v; want HTTP/1.1 408", line, err)
	}
}
