package ca

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	onceToken     = sha256.Sum256([]byte("token"))
	mine, another = sha256.Sum256([]byte("mine")), sha256.Sum256([]byte("another"))
)

func used(t *testing.T, u *Used, key [32]byte, at time.Time, want bool) {
	t.Helper()
	if ok, err := u.Use(t.Context(), onceToken, key, at); ok != want || err != nil {
		t.Errorf("Use = %v, %v, want %v", ok, err, want)
	}
}

func TestAHostsTokenIsUsedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	now := time.Now()
	u := must(NewUsed(path))
	used(t, u, mine, now, true)
	used(t, u, mine, now.Add(retryWindow), false)

	f := must(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))
	f.WriteString("0123") // a line cut off by a crash
	f.Close()
	u = must(NewUsed(path))
	used(t, u, another, now, false)
	used(t, u, mine, now.Add(time.Minute), true)
	if info := must(os.Stat(path)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// If the file is removed, tokens whose use a replica has read before are still refused for other keys.
func TestAUseIsRememberedWithoutTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	now := time.Now()
	one, two := must(NewUsed(path)), must(NewUsed(path))
	used(t, one, mine, now, true)
	used(t, two, mine, now.Add(time.Minute), true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	used(t, two, another, now, false)
}

func TestOfManyKeysOneUsesAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	const tokens = 50
	var granted [tokens]atomic.Int32
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range 8 {
		u := must(NewUsed(path)) // each Used stands for a replica
		all.Go(func() {
			<-start
			for token := range tokens {
				ok, err := u.Use(t.Context(), [32]byte{byte(token)}, [32]byte{byte(i)}, time.Now())
				if err != nil {
					t.Error(err)
				}
				if ok {
					granted[token].Add(1)
				}
			}
		})
	}
	close(start)
	all.Wait()
	for token := range tokens {
		if n := granted[token].Load(); n != 1 {
			t.Errorf("%d keys used token %d", n, token)
		}
	}
}

func TestNothingIsGrantedWithoutTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	u := must(NewUsed(path))
	for text, want := range map[string]string{
		"x\n": "line 1", "aa bb 2020-01-01T00:00:00Z\n": "64 hexadecimal",
		strings.Repeat("0", 64) + " " + strings.Repeat("0", 64) + " yesterday\n": "cannot parse",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewUsed(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a file with %q: %v, want %q", text, err, want)
		}
		if ok, err := u.Use(t.Context(), onceToken, mine, time.Now()); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a file with %q: Use = %v, %v, want %q", text, ok, err, want)
		}
	}
	if _, err := NewUsed(filepath.Join(t.TempDir(), "no", "dir")); err == nil {
		t.Error("no error for a file that cannot be made")
	}
}

func TestUsedTokensAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	u := must(NewUsed(path))
	for i := range maxUsed {
		u.uses[sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})] = FirstUse{}
	}
	if ok, err := u.Use(t.Context(), onceToken, mine, time.Now()); ok || err == nil || !strings.Contains(err.Error(), "remove the lines") {
		t.Errorf("Use = %v, %v; want an error", ok, err)
	}
	if info := must(os.Stat(path)); info.Size() != 0 {
		t.Errorf("%d bytes were written", info.Size())
	}
}

// Whatever the file contains, a token in it is allowed only for its first key.
func FuzzUsedTokens(f *testing.F) {
	const sum = "0000000000000000000000000000000000000000000000000000000000000000"
	f.Add([]byte(sum + " " + sum + " 2026-01-02T03:04:05Z\n"))
	f.Add([]byte(sum + " " + sum + " 2026-01-02T03:04:05Z\n" + sum + " x 2026\n"))
	f.Add([]byte("0123"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "used")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		u, err := NewUsed(path)
		if err != nil {
			return
		}
		for token, first := range u.uses {
			other := first.Key
			other[0]++
			if ok, err := u.Use(t.Context(), token, other, first.At); ok || err != nil {
				t.Errorf("another key uses the token: %v, %v", ok, err)
			}
		}
		if ok, err := u.Use(t.Context(), onceToken, mine, time.Now()); u.uses[onceToken].Key == mine != ok || err != nil {
			t.Errorf("Use = %v, %v", ok, err)
		}
		again, err := NewUsed(path)
		if err != nil || len(again.uses) != len(u.uses) {
			t.Errorf("read again: %v, %d tokens; want %d", err, len(again.uses), len(u.uses))
		}
	})
}
