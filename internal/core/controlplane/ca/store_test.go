package ca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/wire"
)

// A memoryStore is an in-memory store that behaves like a Secret: it can be deleted, it can belong to another
// program, and reads and writes can fail.
type memoryStore struct {
	mu      sync.Mutex
	is      Contents
	version int
	watches map[int]func()
	fails   error
	around  func(update func() error) error // called with each update, if set
}

// newMemoryStore returns a store that does not exist yet.
func newMemoryStore() *memoryStore {
	return &memoryStore{is: Contents{Own: true}, watches: map[int]func(){}}
}

func (s *memoryStore) String() string { return "memoryStore" }

func (s *memoryStore) Read(context.Context) (Contents, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is.clone(), s.fails
}

func (s *memoryStore) Update(_ context.Context, c Contents) error {
	if s.around != nil {
		return s.around(func() error { return s.update(c) })
	}
	return s.update(c)
}

func (s *memoryStore) update(c Contents) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fails != nil:
		return s.fails
	case !s.is.Own:
		panic("another's store is written")
	case c.Version != s.is.Version:
		return ErrConflict
	}
	s.put(c)
	return nil
}

// put stores contents without checks, and calls the watches.
func (s *memoryStore) put(c Contents) {
	s.version++
	s.is = c.clone()
	s.is.Version = fmt.Sprint(s.version)
	s.notify()
}

func (s *memoryStore) notify() {
	for _, i := range slices.Sorted(maps.Keys(s.watches)) {
		s.watches[i]()
	}
}

// set changes the contents as another program would.
func (s *memoryStore) set(c Contents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(c)
}

func (s *memoryStore) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = Contents{Own: true}
	s.notify()
}

func (s *memoryStore) Watch(changed func()) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.watches)
	s.watches[i] = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches[i] = func() {}
	}
}

// After a crash at any time during an update, the store has either the old files or the new ones.
func TestAnUpdateThatWasCutShortIsFinished(t *testing.T) {
	was := map[string][]byte{"ca-cert.pem": []byte("old"), "ca-key.pem": []byte("old"), "next-cert.pem": []byte("n"), "rotate": []byte("r")}
	want := map[string][]byte{"ca-cert.pem": []byte("new"), "ca-key.pem": []byte("new"), "root-cert.pem": []byte("new"), "rotate": {}}
	changes := map[string][]byte{"ca-cert.pem": []byte("new"), "ca-key.pem": []byte("new"), "next-cert.pem": nil, "root-cert.pem": []byte("new"), "rotate": {}}
	journal := must(json.Marshal(changes))
	names := slices.Sorted(maps.Keys(changes))
	for done := range len(names) + 1 {
		dir := Directory(t.TempDir())
		if err := dir.Update(t.Context(), Contents{Files: was, Version: contentsOf(nil).Version}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names[:done] {
			if changes[name] == nil {
				os.Remove(dir.path(name))
			} else if err := os.WriteFile(dir.path(name), changes[name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(dir.path(unappliedFile), journal, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := dir.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Files); diff != "" {
			t.Errorf("after a crash with %d files written (-want +got):\n%s", done, diff)
		}
		if _, err := os.Stat(dir.path(unappliedFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the update's file stays: %v", err)
		}
	}
}

func TestADirectoryKeepsToItsOwnFiles(t *testing.T) {
	dir := Directory(t.TempDir())
	empty := contentsOf(nil)
	for _, name := range []string{"../x", "x", unappliedFile} {
		empty.Files = map[string][]byte{name: nil}
		if err := dir.Update(t.Context(), empty); err == nil || !strings.Contains(err.Error(), "none of an authority's files") {
			t.Errorf("Update of %q = %v", name, err)
		}
	}
	for text, want := range map[string]string{`{"../x": "eA=="}`: "none of an authority's files", "{": "unexpected end"} {
		if err := os.WriteFile(dir.path(unappliedFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := dir.Read(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), unappliedFile) {
			t.Errorf("an update with %s: %v, want %q", text, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(string(dir)), "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file outside was written")
	}
}

func shared(t testing.TB, s Store, edit func(*AuthorityOptions)) *Authority {
	t.Helper()
	o := AuthorityOptions{Store: s, StoreTokenKey: true}
	if edit != nil {
		edit(&o)
	}
	a, err := NewAuthority(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// run runs an authority until the test ends.
func run(t testing.TB, a *Authority) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { a.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestReplicasShareOneRootAndTheKeyOfTokens(t *testing.T) {
	s := newMemoryStore()
	var all [8]*Authority
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = shared(t, s, nil) })
	}
	wg.Wait()
	if s.version != 1 {
		t.Errorf("the store was written %d times, want once", s.version)
	}
	text := must(all[0].Tokens().Issue(Claim{Namespace: "shop", ServiceAccount: "app"}, all[0].now()))
	for _, a := range all[1:] {
		if !a.Roots()[0].Equal(all[0].Roots()[0]) {
			t.Error("two roots were made")
		}
		if _, err := a.Tokens().Verify(text, DefaultAudience, a.now()); err != nil {
			t.Errorf("a replica refuses the token of another one: %v", err)
		}
	}
}

// If outriderd may not write the authority's files, it derives the key for tokens from the authority's key.
func TestTokensOfAnAuthorityThatIsNotOurs(t *testing.T) {
	files := map[string][]byte{}
	if err := addRoot(files, "cluster.local", time.Now(), rootLife); err != nil {
		t.Fatal(err)
	}
	s := newMemoryStore()
	s.set(Contents{Files: files})
	one, two, other := shared(t, s, nil), shared(t, s, nil), shared(t, newMemoryStore(), nil)
	text := must(one.Tokens().Issue(Claim{Namespace: "shop", ServiceAccount: "app"}, one.now()))
	if _, err := two.Tokens().Verify(text, DefaultAudience, two.now()); err != nil {
		t.Errorf("a replica refuses the token of another one: %v", err)
	}
	if _, err := other.Tokens().Verify(text, DefaultAudience, other.now()); err == nil {
		t.Error("the token is good at another authority")
	}
	key := must(derivedTokenKey(one.loaded().key))
	if again := must(derivedTokenKey(one.loaded().key)); !key.Equal(again.PrivateKey) || key.Equal(one.loaded().key) {
		t.Error("the key of tokens is another one each time, or the authority's")
	}
}

// NewAuthority waits until another program has created a store that outriderd may not write.
func TestAStoreThatIsNotThereYetIsWaitedFor(t *testing.T) {
	s := newMemoryStore()
	s.is.Own = false
	if _, err := NewAuthority(t.Context(), AuthorityOptions{Store: s}); err == nil || !strings.Contains(err.Error(), "memoryStore/ca-cert.pem: there is no such file") {
		t.Errorf("without waiting: %v", err)
	}
	lacks := make(chan error, 10)
	opened := make(chan *Authority, 1)
	go func() {
		a, _ := NewAuthority(t.Context(), AuthorityOptions{Store: s, Waiting: func(err error) { lacks <- err }})
		opened <- a
	}()
	if err := <-lacks; !strings.Contains(err.Error(), "ca-cert.pem") {
		t.Errorf("it waits for %v", err)
	}
	files := map[string][]byte{}
	if err := addRoot(files, "cluster.local", time.Now(), rootLife); err != nil {
		t.Fatal(err)
	}
	half := map[string][]byte{"ca-cert.pem": files["ca-cert.pem"], "root-cert.pem": files["root-cert.pem"]}
	s.set(Contents{Files: half})
	if err := <-lacks; !strings.Contains(err.Error(), "ca-key.pem") {
		t.Errorf("with half of the files it waits for %v", err)
	}
	s.set(Contents{Files: files})
	a := <-opened
	if got := string(a.RootsPEM()); got != string(files["root-cert.pem"]) {
		t.Errorf("the roots are %s", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if _, err := NewAuthority(ctx, AuthorityOptions{Store: newMemoryStore(), Waiting: func(error) {}}); err == nil || err.Error() != "stopped" {
		t.Errorf("after the end: %v", err)
	}
}

func TestADeletedStoreIsWrittenBack(t *testing.T) {
	s := newMemoryStore()
	for range 2 {
		run(t, shared(t, s, nil))
	}
	before := s.is.Files
	written := make(chan struct{}, 10)
	defer s.Watch(func() { written <- struct{}{} })()
	s.remove()
	<-written // the removal
	<-written
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(before, s.is.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A deleted store is written again only if outriderd created it.
func TestADeletedStoreOfAnotherIsNotWrittenBack(t *testing.T) {
	s := newMemoryStore()
	a := shared(t, s, nil)
	s.set(Contents{Files: s.is.Files})
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.remove()
	if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "the authority stays as it was") {
		t.Errorf("Reload = %v, want an error", err)
	}
	if s.is.Version != "" {
		t.Error("it was written")
	}
	sign(t, a, shop, 0)
}

func TestAStoreThatFails(t *testing.T) {
	s := newMemoryStore()
	a := shared(t, s, nil)
	s.fails = errors.New("no route to host")
	if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "the authority stays as it was: no route to host") {
		t.Errorf("Reload = %v", err)
	}
	if _, err := NewAuthority(t.Context(), AuthorityOptions{Store: s}); err == nil || !strings.Contains(err.Error(), "reading the authority's files: no route to host") {
		t.Errorf("NewAuthority = %v", err)
	}
	sign(t, a, shop, 0)
}

func TestAKeyOfTokensThatIsNone(t *testing.T) {
	rsaKey := []byte("-----BEGIN X-----\n-----END X-----\n")
	certificate := wire.MarshalCertificates(authority(t, t.TempDir()).Roots()...)
	for _, raw := range [][]byte{rsaKey, certificate, nil} {
		s := newMemoryStore()
		a := shared(t, s, nil)
		files := s.is.clone().Files
		files[tokenKeyFile] = raw
		s.set(Contents{Files: files, Own: true})
		if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "memoryStore/token-key.pem: ") {
			t.Errorf("with %q: %v, want an error that names the file", raw, err)
		}
	}
}
