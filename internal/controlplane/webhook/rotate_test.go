package webhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// trusting is the bundle of the configuration.
type trusting struct {
	mu     sync.Mutex
	bundle []byte
}

func (b *trusting) set(bundle []byte) { b.mu.Lock(); b.bundle = bundle; b.mu.Unlock() }
func (b *trusting) get() []byte       { b.mu.Lock(); defer b.mu.Unlock(); return b.bundle }

// Fifty clients ask without a pause while the certificate is renewed thirty times and the
// root is exchanged under it. A client with the current bundle never fails; one
// with the old root fails once that is gone, and not before.
func TestCertificatesRotateUnderManyClients(t *testing.T) {
	dir, nextDir := t.TempDir(), t.TempDir()
	a, next := authority(t, dir), authority(t, nextDir)
	file := func(dir, name string) []byte {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	w := New(Options{Namespaces: enabled})
	// A certificate's end is a whole second, so its life is some; it is renewed at half of
	// it, and whenever the authority's files change, which is more often here.
	url := "https://" + serve(t, w, a, 8*time.Second) + Path
	current := &trusting{bundle: a.RootsPEM()}
	old := a.RootsPEM()

	pod := podJSON(t, plain)
	var stop atomic.Bool
	var reviews atomic.Int64
	var seen sync.Map // certificates by serial number
	var workers sync.WaitGroup
	t.Cleanup(func() { stop.Store(true); workers.Wait() })
	const clients, each = 50, 8
	for i := range clients {
		workers.Go(func() {
			for n := 0; !stop.Load(); n++ {
				c := client(t, current.get(), "http/1.1") // a new connection, now and then, as after an idle time
				for j := range each {
					uid := fmt.Sprintf("%d-%d-%d", i, n, j)
					r, err := c.Post(url, "application/json", bytes.NewReader(reviewOf(uid, "shop", pod)))
					if err != nil {
						t.Errorf("client %d: %v", i, err)
						stop.Store(true)
						return
					}
					body, err := io.ReadAll(r.Body)
					r.Body.Close()
					if err != nil || r.StatusCode != 200 {
						t.Errorf("client %d: %d %v", i, r.StatusCode, err)
						stop.Store(true)
						return
					}
					if got := read(t, 200, nil, body).response; got.UID != uid || !got.Allowed || len(got.Patch) == 0 {
						t.Errorf("client %d: %+v", i, got)
					}
					seen.Store(r.TLS.PeerCertificates[0].SerialNumber.String(), true)
					reviews.Add(1)
				}
				c.CloseIdleConnections()
			}
		})
	}
	// more waits for n more reviews.
	more := func(n int64) {
		end := reviews.Load() + n
		for deadline := time.Now().Add(time.Minute); reviews.Load() < end && !stop.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d reviews in a minute, want %d more", reviews.Load(), end-reviews.Load())
			}
		}
	}
	trusted := func(bundle []byte) error {
		r, err := client(t, bundle, "http/1.1").Post(url, "application/json", bytes.NewReader(reviewOf("u", "shop", pod)))
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	// renewed has the roots written again and again, by which each time a new certificate
	// is signed, under clients that go on asking.
	renewed := func(roots []byte) {
		for range 10 {
			roots = append(slices.Clone(roots), '\n')
			exchange(t, a, dir, map[string][]byte{"root-cert.pem": roots})
			more(100)
		}
	}
	renewed(old)
	both := slices.Concat(old, next.RootsPEM())
	exchange(t, a, dir, map[string][]byte{"root-cert.pem": both})
	current.set(a.RootsPEM())
	more(clients * each * 2) // every client has had its next connection
	if err := trusted(old); err != nil {
		t.Errorf("both roots are in use, and a client with the old one fails: %v", err)
	}
	exchange(t, a, dir, map[string][]byte{"ca-key.pem": file(nextDir, "ca-key.pem"), "ca-cert.pem": file(nextDir, "ca-cert.pem")})
	renewed(both)
	exchange(t, a, dir, map[string][]byte{"root-cert.pem": next.RootsPEM()})
	current.set(a.RootsPEM())
	renewed(next.RootsPEM())
	stop.Store(true)
	workers.Wait()
	if err := trusted(old); err == nil {
		t.Error("a client with the old root alone still trusts the certificate")
	}
	serials := map[any]bool{}
	seen.Range(func(k, _ any) bool { serials[k] = true; return true })
	if len(serials) < 20 {
		t.Errorf("%d certificates were seen only", len(serials))
	}
	t.Logf("%d reviews, %d certificates", reviews.Load(), len(slices.Collect(maps.Keys(serials))))
}

// Clients that send half of a review, or nothing, delay no other client.
func TestSlowClientsDelayNoOthers(t *testing.T) {
	a := authority(t, t.TempDir())
	w := New(Options{Namespaces: enabled, Limits: Limits{Concurrency: 1, Timeout: 300 * time.Millisecond}})
	address := serve(t, w, a, 0)
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
