package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// lockedBefore locks the namespace of the calling thread through a new file, like another process.
func lockedBefore(t *testing.T) (unlock func()) {
	t.Helper()
	f, err := os.Open(netnsFile)
	if err != nil {
		t.Error(err)
		return func() {}
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		t.Error(err)
	}
	return func() { f.Close() }
}

func TestLockWaitsForItsHolder(t *testing.T) {
	ns.RequireRoot(t)
	ns.New(t).Do(func() {
		release := lockedBefore(t)
		notes, announced := io.Pipe()
		go func() {
			notes.Read(make([]byte, 1000))
			release()
		}()
		_, unlock, err := lock(t.Context(), announced, time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		if _, _, err := lock(t.Context(), io.Discard, time.Millisecond); err == nil {
			t.Error("locked twice")
		}
		unlock()
		// The abandoned wait gets the lock for a moment, and unlocks it.
		_, unlock, err = lock(t.Context(), io.Discard, time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		unlock()
	})
}

func TestLockWaitIsBounded(t *testing.T) {
	ns.RequireRoot(t)
	ns.New(t).Do(func() {
		release := lockedBefore(t)
		defer release()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		for want, try := range map[string]func(io.Writer) error{
			"for 1ms; nothing was changed": func(w io.Writer) error { _, _, err := lock(t.Context(), w, time.Millisecond); return err },
			"enough; nothing was changed":  func(w io.Writer) error { _, _, err := lock(ctx, w, time.Minute); return err },
		} {
			var notes bytes.Buffer
			err := try(&notes)
			self := fmt.Sprintf("process %d (", os.Getpid())
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), self) {
				t.Errorf("%v, want %q and %q", err, self, want)
			}
			if !strings.Contains(notes.String(), "waiting for "+self) {
				t.Errorf("note %q, want the holder", &notes)
			}
		}
	})
	// Another namespace has a separate lock.
	ns.New(t).Do(func() {
		_, unlock, err := lock(t.Context(), io.Discard, time.Millisecond)
		if err != nil {
			t.Error(err)
			return
		}
		unlock()
	})
}

func FuzzHolder(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 4711 00:04:4026531840 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4712 00:04:4026531840 0 EOF\n", uint64(4), uint64(4026531840))
	f.Fuzz(func(t *testing.T, list string, dev, ino uint64) {
		if pid := holderIn(list, dev, ino); pid < 0 {
			t.Errorf("process %d", pid)
		}
	})
}
