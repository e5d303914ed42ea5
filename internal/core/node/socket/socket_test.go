package socket

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// served runs the daemon's side of a socket, and returns the path of the socket once it listens.
func served(t *testing.T, handle func(context.Context, Question) error) string {
	t.Helper()
	ns.RequireRoot(t)
	path := filepath.Join(t.TempDir(), "run", "node.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, path, handle) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	process.Retry(t, func() error {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return path
}

func TestQuestionAndAnswer(t *testing.T) {
	asked := make(chan Question, 1)
	refusal := make(chan error, 1)
	path := served(t, func(_ context.Context, q Question) error {
		asked <- q
		return <-refusal
	})
	q := Question{Sandbox: "4f", Namespace: "/run/netns/a", Work: strings.Repeat("w", 300<<10), Nameservers: []netip.Addr{netip.MustParseAddr("fd00::a")}}
	refusal <- nil
	if err := Ask(t.Context(), path, q); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(q, <-asked, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	refusal <- errors.New("no nftables" + strings.Repeat("\x01", maxAnswer))
	if err := Ask(t.Context(), path, q); err == nil || !strings.HasPrefix(err.Error(), "no nftables") || errors.Is(err, ErrAbsent) {
		t.Errorf("%.100v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// A new daemon can replace a daemon that has ended or is about to end.
func TestTakeover(t *testing.T) {
	path := served(t, func(context.Context, Question) error { return errors.New("old") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, path, func(context.Context, Question) error { return nil }) }()
	process.Retry(t, func() error { return Ask(t.Context(), path, Question{}) })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Ask(t.Context(), path, Question{}); !errors.Is(err, ErrAbsent) {
		t.Errorf("after its end: %v", err)
	}
}

// A daemon that ends with a question in its queue has not read the question, so the plugin asks again.
func TestAnEndBeforeTheQuestionIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() { asked <- Ask(t.Context(), path, Question{Sandbox: "4f"}) }()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the remaining connections are in the queue
		t.Fatal(err)
	}
	conn.Close()
	if err := <-asked; !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
}

func TestNoAnswer(t *testing.T) {
	path := served(t, func(ctx context.Context, _ Question) error { <-ctx.Done(); return nil })
	err := ErrAbsent
	for limit := 50 * time.Millisecond; errors.Is(err, ErrAbsent) && limit < time.Minute; limit *= 2 { // some limit is long enough to connect
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = Ask(ctx, path, Question{})
		cancel()
	}
	if err == nil || errors.Is(err, ErrAbsent) {
		t.Errorf("a daemon that does not answer: %v", err)
	}
	if err := Ask(t.Context(), path+".none", Question{}); !errors.Is(err, ErrAbsent) {
		t.Errorf("no daemon: %v", err)
	}
}

// Bytes that are not a question get an error as the answer.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte(`{"sandbox":"a","namespace":"/run/netns/a","work":"{}"}`))
	f.Add([]byte(`{"nameservers":["x"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ns.RequireRoot(t)
		dir := t.TempDir()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = client.Write(text)
			_ = client.(*net.UnixConn).CloseWrite()
		}()
		asked := false
		go func() {
			defer server.Close()
			serve(t.Context(), server, func(context.Context, Question) error { asked = true; return nil })
		}()
		var a answer
		if err := json.NewDecoder(client).Decode(&a); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if asked == (a.Error != "") {
			t.Errorf("%q: asked %v, and the answer is %q", text, asked, a.Error)
		}
	})
}
