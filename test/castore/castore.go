// Package castore tests that every store for the files of a certificate authority follows the same rules: the
// folder, the Secret in a real cluster, and the store that the tests of package ca use.
package castore

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/controlplane/ca"
)

// Check tests a store through the views of two control planes. The store must not contain anything yet.
func Check(t *testing.T, one, two ca.Store) {
	t.Helper()
	read := func(s ca.Store, want map[string][]byte) ca.Contents {
		t.Helper()
		c, err := s.Read(t.Context())
		if err != nil || !c.Own {
			t.Fatalf("Read = %+v, %v; want our own", c, err)
		}
		if diff := cmp.Diff(want, c.Files); diff != "" && len(want)+len(c.Files) > 0 {
			t.Fatalf("files (-want +got):\n%s", diff)
		}
		return c
	}
	update := func(s ca.Store, c ca.Contents, files map[string][]byte, want error) {
		t.Helper()
		c.Files = files
		if err := s.Update(t.Context(), c); !errors.Is(err, want) {
			t.Fatalf("Update = %v, want %v", err, want)
		}
	}
	seen := make(chan struct{}, 1)
	stop := two.Watch(func() {
		select {
		case seen <- struct{}{}:
		default:
		}
	})
	defer stop()
	noticed := func(files map[string][]byte) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case <-seen:
			case <-end:
				t.Fatal("the other control plane does not notice the update within a minute")
			}
			if c, err := two.Read(t.Context()); err == nil && cmp.Equal(files, c.Files) {
				return
			}
		}
	}

	first, second := map[string][]byte{"ca-key.pem": []byte("1"), "rotate": []byte("x")}, map[string][]byte{"ca-key.pem": []byte("2"), "tls.key": []byte("3")}
	nothing, other := read(one, nil), read(two, nil)
	update(one, nothing, first, nil)
	update(two, other, second, ca.ErrConflict) // the store has the files of the first update
	noticed(first)
	old := read(two, first)
	update(two, old, second, nil) // an update that removes a file
	noticed(second)
	update(one, old, first, ca.ErrConflict)
	read(one, second)

	var won atomic.Int32
	var all sync.WaitGroup
	now := read(one, second)
	for i := range 8 {
		all.Go(func() {
			c := now
			c.Files = map[string][]byte{"ca-key.pem": {byte('a' + i)}}
			switch err := []ca.Store{one, two}[i%2].Update(t.Context(), c); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, ca.ErrConflict):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("of 8 updates of one version %d were done, want 1", won.Load())
	}
}

// CheckUsed tests the record of used tokens through the views of two control planes.
func CheckUsed(t *testing.T, one, two ca.UsedTokens) {
	t.Helper()
	use := func(u ca.UsedTokens, token, key byte, at time.Time, want bool) {
		t.Helper()
		if ok, err := u.Use(t.Context(), [32]byte{token}, [32]byte{key}, at); ok != want || err != nil {
			t.Errorf("Use of token %d with key %d = %v, %v; want %v", token, key, ok, err, want)
		}
	}
	now := time.Now()
	use(one, 1, 1, now, true)
	use(two, 1, 2, now, false)
	use(one, 1, 2, now, false)
	use(two, 1, 1, now.Add(time.Minute), true) // the response was lost, and the request repeated
	use(two, 1, 1, now.Add(time.Hour), false)
	use(two, 2, 2, now, true)

	const tokens = 20
	var granted [tokens]atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for token := range tokens {
				ok, err := []ca.UsedTokens{one, two}[i%2].Use(t.Context(), [32]byte{3, byte(token)}, [32]byte{byte(i)}, now)
				if err != nil {
					t.Error(err)
				}
				if ok {
					granted[token].Add(1)
				}
			}
		})
	}
	all.Wait()
	for token := range tokens {
		if n := granted[token].Load(); n != 1 {
			t.Errorf("%d keys used token %d, want 1", n, token)
		}
	}
}
