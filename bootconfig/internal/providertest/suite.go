// Package providertest is the test suite that bootconfig's adapters share. An adapter runs it on a fake server,
// and on the real server if that is installed, so that any difference between the two is noticed.
package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/bootconfig"
)

// A Centre is a configuration server, fake or real, in one test.
type Centre struct {
	// Provider returns a provider for the document with a name, with a new client, which is closed at the end of
	// the test.
	Provider    func(t *testing.T, name string) bootconfig.Provider
	Put         func(name, document string) error
	Delete      func(name string) error
	Kill, Start func(t *testing.T) // Start is called after Kill; it must listen on the same address, and may have lost the documents
	Missing     string             // part of the error for a document that does not exist

	// Refused returns a provider whose credentials the server refuses, and a part of the error. nil if the server
	// accepts all callers.
	Refused func(t *testing.T, name string) (provider bootconfig.Provider, want string)
}

// limit bounds each wait. It is long, because a real server takes half a minute to start on a busy machine.
const limit = 2 * time.Minute

// Run runs the suite. It kills the server in one of the tests, and has started it again when Run returns.
func (c Centre) Run(t *testing.T) {
	t.Run("fetches and long polls", c.fetches)
	t.Run("bad documents change nothing", c.badDocuments)
	t.Run("the centre is killed, and away at the start", c.killed)
	t.Run("credentials are refused", c.refused)
}

func (c Centre) put(t *testing.T, name, document string) {
	t.Helper()
	eventually(t, "writing "+name, func() error { return c.Put(name, document) })
}

// fetch returns a document that was just written. It retries, because Nacos serves a new document with a delay.
func fetch(t *testing.T, p bootconfig.Provider) (d bootconfig.Document) {
	t.Helper()
	eventually(t, "the first document of "+p.String(), func() (err error) {
		d, err = p.Fetch(t.Context(), request("", 0))
		return err
	})
	return d
}

func (c Centre) fetches(t *testing.T) {
	const name = "document"
	p := c.Provider(t, name)
	if _, err := p.Fetch(t.Context(), request("", 0)); err == nil || !strings.Contains(err.Error(), c.Missing) {
		t.Errorf("before it exists: %v; want %s", err, c.Missing)
	}
	c.put(t, name, "one")
	first := fetch(t, p)
	if string(first.Data) != "one" || first.Version == "" {
		t.Fatalf("the first: %q of version %q", first.Data, first.Version)
	}
	for what, wait := range map[string]time.Duration{"at once": 0, "held": 50 * time.Millisecond} { // any order: nothing changes
		if _, err := p.Fetch(t.Context(), request(first.Version, wait)); !errors.Is(err, bootconfig.ErrUnchanged) {
			t.Errorf("the same, %s: %v", what, err)
		}
	}
	// After a restart, another process sends the version of its last good document.
	if _, err := c.Provider(t, name).Fetch(t.Context(), request(first.Version, 50*time.Millisecond)); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("the same, by another client: %v", err)
	}
	// A fetch with a version that the server does not know (of another provider, or lost in a new installation)
	// must return at once.
	ctx, cancel := context.WithTimeout(t.Context(), limit/2)
	defer cancel()
	for _, version := range []string{"1", "0", "-1", "4000000000", "sha256:x"} {
		if d, err := c.Provider(t, name).Fetch(ctx, request(version, limit)); err != nil || string(d.Data) != "one" {
			t.Errorf("with version %q: %q, %v", version, d.Data, err)
		}
	}
	type result struct {
		document bootconfig.Document
		err      error
	}
	fetched := make(chan result, 1)
	go func() {
		d, err := p.Fetch(ctx, request(first.Version, limit))
		fetched <- result{d, err}
	}()
	c.put(t, "another", "x")
	c.put(t, name, "two")
	if r := <-fetched; r.err != nil || string(r.document.Data) != "two" || r.document.Version == first.Version {
		t.Errorf("after the change: %q of version %q, %v", r.document.Data, r.document.Version, r.err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := p.Fetch(ended, request("", 0)); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "http") {
		t.Errorf("cancelled: %v", err)
	}
}

// badDocuments checks that the value stays when the document is invalid, huge or deleted.
func (c Centre) badDocuments(t *testing.T) {
	const name = "level"
	c.put(t, name, level("one"))
	config, _ := open(t, c.Provider(t, name), "")
	reaches(t, config, "one")
	huge := `{"level":"` + strings.Repeat("x", maxSize+1) + `"}`
	for i, bad := range []struct{ document, want string }{ // each is followed by a good document
		{`{"level":`, "rejected"},
		{huge, bootconfig.ErrTooLarge.Error()},
		{"", c.Missing},
	} {
		if bad.document == "" {
			eventually(t, "deleting "+name, func() error { return c.Delete(name) })
		} else {
			c.put(t, name, bad.document)
		}
		before := config.Get().Level
		fails(t, config, bad.want)
		if got := config.Get().Level; got != before {
			t.Errorf("the level is %q with a bad document; want %q", got, before)
		}
		next := fmt.Sprint("good ", i)
		c.put(t, name, level(next))
		reaches(t, config, next)
	}
}

// killed kills the server while a program uses it, starts a second program, and then restarts the server.
func (c Centre) killed(t *testing.T) {
	const name = "killed"
	c.put(t, name, level("one"))
	provider := c.Provider(t, name)
	held := fetch(t, provider)
	lastGood := filepath.Join(t.TempDir(), "last")
	config, _ := open(t, c.Provider(t, name), lastGood)
	reaches(t, config, "one")
	eventually(t, "the last good document on disk", func() error { _, err := os.Stat(lastGood); return err })

	c.Kill(t)
	fails(t, config, "fetching")
	second, errs := open(t, c.Provider(t, name), lastGood)
	for _, s := range []bootconfig.Snapshot[settings]{config.Snapshot(), second.Snapshot()} {
		if s.Value.Level != "one" {
			t.Errorf("the level is %q without the centre", s.Value.Level)
		}
	}
	if s := second.Snapshot(); s.Source != bootconfig.FromLastGood {
		t.Errorf("without the centre the value is from %v; want %v", s.Source, bootconfig.FromLastGood)
	}
	if err := <-errs; err == nil || secret(err) {
		t.Errorf("what is reported: %v", err)
	}
	if d, err := provider.Fetch(t.Context(), request(held.Version, 50*time.Millisecond)); err == nil || errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("a fetch without the centre: %q, %v", d.Data, err)
	}

	c.Start(t)
	c.put(t, name, level("two"))
	reaches(t, config, "two")
	reaches(t, second, "two")
	// held.Version is outdated, so the long poll must return the new document before its time is over.
	ctx, cancel := context.WithTimeout(t.Context(), limit/2)
	defer cancel()
	if d, err := provider.Fetch(ctx, request(held.Version, limit)); err != nil || string(d.Data) != level("two") {
		t.Errorf("a long poll with a version of before: %q, %v", d.Data, err)
	}
}

func (c Centre) refused(t *testing.T) {
	if c.Refused == nil {
		t.Skip("this centre takes all callers")
	}
	c.put(t, "refused", level("hidden"))
	provider, want := c.Refused(t, "refused")
	config, errs := open(t, provider, "")
	if err := <-errs; err == nil || !strings.Contains(err.Error(), want) || secret(err) {
		t.Errorf("%v; want %s, and no credentials", err, want)
	}
	if s := config.Snapshot(); s.Source != bootconfig.FromDefault || s.Value.Level != "" {
		t.Errorf("the value is %+v of %v", s.Value, s.Source)
	}
}

type settings struct{ Level string }

func level(s string) string {
	data, err := json.Marshal(map[string]string{"level": s})
	if err != nil {
		panic(err)
	}
	return string(data)
}

const maxSize = 200 << 10 // below the limits of the servers: Consul's is 512 KiB

// Secret and WrongSecret are credentials for tests, in the form of Consul's tokens. No error may
// contain them.
const (
	Secret      = "5e07a1d2-7d0f-4d4b-9c0e-1b1f6a8e2c33"
	WrongSecret = "99999999-7d0f-4d4b-9c0e-1b1f6a8e2c33"
)

func secret(err error) bool {
	return strings.Contains(err.Error(), Secret) || strings.Contains(err.Error(), WrongSecret)
}

func request(version string, wait time.Duration) bootconfig.Request {
	return bootconfig.Request{Version: version, Wait: wait, MaxSize: maxSize}
}

// open returns a Config with the provider, and the errors that it reports.
func open(t *testing.T, p bootconfig.Provider, lastGood string) (*bootconfig.Config[settings], <-chan error) {
	t.Helper()
	errs := make(chan error, 64)
	config, err := bootconfig.Open(t.Context(), bootconfig.Options[settings]{
		Provider: p, LastGood: lastGood, Refresh: time.Second, LongPoll: 2 * time.Second, MaxSize: maxSize,
		OnError: func(err error) {
			t.Log(err)
			select {
			case errs <- err:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(config.Close)
	return config, errs
}

func reaches(t *testing.T, config *bootconfig.Config[settings], want string) {
	t.Helper()
	eventually(t, "level "+want, func() error {
		if s := config.Snapshot(); s.Value.Level != want || s.Source != bootconfig.FromProvider || s.Err != nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func fails(t *testing.T, config *bootconfig.Config[settings], want string) {
	t.Helper()
	eventually(t, "an error with "+want, func() error {
		if s := config.Snapshot(); s.Err == nil || !strings.Contains(s.Err.Error(), want) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// eventually fails the test if f still returns an error at the limit.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s did not come: %v", what, err)
		}
	}
}
