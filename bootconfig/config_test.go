package bootconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// settings are valid only if Twice is 2*N, so a mixture of two documents is invalid.
type settings struct {
	N, Twice int
	Names    map[string]int `json:",omitempty"`
}

func (s settings) Validate() error {
	if s.Twice != 2*s.N {
		return fmt.Errorf("Twice is %d; it must be %d", s.Twice, 2*s.N)
	}
	return nil
}

func good(n int) []byte {
	data, err := json.Marshal(settings{N: n, Twice: 2 * n})
	if err != nil {
		panic(err)
	}
	return data
}

// A script is a provider whose Fetch is the function.
type script func(ctx context.Context, r Request) (Document, error)

func (s script) Fetch(ctx context.Context, r Request) (Document, error) { return s(ctx, r) }
func (s script) String() string                                         { return "script" }

// steps returns a script whose nth fetch calls the nth function of all; any later fetch calls the last
// function.
func steps(all ...script) script {
	var n atomic.Int64
	return func(ctx context.Context, r Request) (Document, error) {
		i := min(int(n.Add(1)), len(all))
		return all[i-1](ctx, r)
	}
}

func serve(version string, data []byte) script {
	return func(context.Context, Request) (Document, error) { return Document{version, data}, nil }
}

func fail(text string) script {
	return func(context.Context, Request) (Document, error) { return Document{}, errors.New(text) }
}

func hang(ctx context.Context, _ Request) (Document, error) {
	<-ctx.Done()
	return Document{}, ctx.Err()
}

// collected is a list of errors for Options.OnError. A test reads it when all other goroutines of the synctest
// bubble are idle.
type collected struct {
	mu  sync.Mutex
	all []string
}

func (c *collected) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err.Error())
}

func (c *collected) has(t *testing.T, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(strings.Join(c.all, "\n"), text) {
		t.Errorf("reported: %q; want one with %q", c.all, text)
	}
}

func open(t *testing.T, o Options[settings]) *Config[settings] {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAnOptionThatCannotWorkIsAnErrorOfOpen(t *testing.T) {
	folder := t.TempDir()
	p := serve("1", good(1))
	tests := map[string]struct {
		o    Options[settings]
		want string
	}{
		"no provider":               {Options[settings]{}, "Provider is missing"},
		"refresh too often":         {Options[settings]{Provider: p, Refresh: time.Millisecond}, "Refresh is 1ms"},
		"refresh below zero":        {Options[settings]{Provider: p, Refresh: -time.Minute}, "Refresh is -1m0s"},
		"refresh too rarely":        {Options[settings]{Provider: p, Refresh: 48 * time.Hour}, "Refresh is 48h"},
		"long poll too short":       {Options[settings]{Provider: p, LongPoll: time.Millisecond}, "LongPoll is 1ms"},
		"long poll too long":        {Options[settings]{Provider: p, LongPoll: time.Hour}, "LongPoll is 1h"},
		"timeout below zero":        {Options[settings]{Provider: p, Timeout: -1}, "Timeout is -1ns"},
		"size below zero":           {Options[settings]{Provider: p, MaxSize: -1}, "MaxSize is -1"},
		"schema with a slash":       {Options[settings]{Provider: p, LastGood: folder + "/a", Schema: "../x"}, `Schema is "../x"`},
		"schema without effect":     {Options[settings]{Provider: p, Schema: "2"}, "without LastGood"},
		"last good is a folder":     {Options[settings]{Provider: p, LastGood: folder}, "is a folder"},
		"last good ends in a slash": {Options[settings]{Provider: p, LastGood: folder + "/new/"}, "is a folder"},
		"file is a folder":          {Options[settings]{Provider: p, File: folder}, "is a folder"},
		"file would be overwritten": {Options[settings]{Provider: p, File: folder + "/a", LastGood: folder + "/./a"}, "LastGood is written"},
		"default is not valid":      {Options[settings]{Provider: p, Validate: settings.Validate, Default: func() settings { return settings{N: 1} }}, "the value of Default: Twice is 0"},
		"embedded is not valid":     {Options[settings]{Provider: p, Validate: settings.Validate, Embedded: []byte(`{"N":1}`)}, "the value of Embedded: Twice is 0"},
		"embedded is no JSON":       {Options[settings]{Provider: p, Embedded: []byte(`{`)}, "the value of Embedded: decoding JSON"},
		"embedded is null":          {Options[settings]{Provider: p, Embedded: []byte(` null `)}, "null is not a document"},
		"embedded is two":           {Options[settings]{Provider: p, Embedded: []byte(`{} {}`)}, "something follows"},
		"embedded is empty":         {Options[settings]{Provider: p, Embedded: []byte{}}, "is empty"},
		"validation panics":         {Options[settings]{Provider: p, Validate: func(settings) error { panic("oh") }}, "Validate panicked: oh"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Open(t.Context(), tt.o)
			if err == nil {
				c.Close()
				t.Fatalf("Open took it; want an error with %q", tt.want)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q; want %q in it", err, tt.want)
			}
		})
	}
}

// Open takes the value from the first valid source, in the order of the package comment, and skips bad and
// missing sources.
func TestTheStartTakesTheFirstGoodSource(t *testing.T) {
	stored := func(n int, schema string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := newStore(path, schema, 1<<20).save(record{header{From: "script", Version: "7", Fetched: time.Now()}, good(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	raw := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	none := func(*testing.T, string) {}
	tests := map[string]struct {
		lastGood, file func(*testing.T, string)
		embedded       []byte
		want           Source
		n              int
		err            string
	}{
		"the last good one":                  {stored(1, "3"), raw(string(good(2))), good(3), FromLastGood, 1, ""},
		"the file, without a last good one":  {none, raw(string(good(2))), good(3), FromFile, 2, ""},
		"the embedded one, without a file":   {none, none, good(3), FromEmbedded, 3, ""},
		"the default, without any":           {none, none, nil, FromDefault, 4, ""},
		"the last good one is corrupt":       {raw("x"), raw(string(good(2))), good(3), FromFile, 2, "it has no header"},
		"the last good one is of tomorrow":   {stored(1, "4"), raw(string(good(2))), good(3), FromFile, 2, `schema "4"; this program reads schema "3"`},
		"the last good one is not valid now": {stored(-1, "3"), raw(string(good(2))), good(3), FromFile, 2, "negative"},
		"the file is bad":                    {none, raw(`{"N":1}`), good(3), FromEmbedded, 3, "Twice is 8; it must be 2"},
		"both are bad":                       {raw(""), raw(""), good(3), FromEmbedded, 3, "it has no header"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tt.lastGood(t, dir+"/last")
			tt.file(t, dir+"/file")
			c := open(t, Options[settings]{
				Provider: script(hang), LastGood: dir + "/last", Schema: "3", File: dir + "/file", Embedded: tt.embedded,
				Default: func() settings { return settings{N: 4, Twice: 8} },
				Validate: func(s settings) error {
					if s.N < 0 {
						return errors.New("N is negative")
					}
					return s.Validate()
				},
			})
			s := c.Snapshot()
			if s.Source != tt.want || s.Value.N != tt.n || c.Get().N != tt.n {
				t.Errorf("started with %d from %s; want %d from %s", s.Value.N, s.Source, tt.n, tt.want)
			}
			if (s.Err == nil) != (tt.err == "") || s.Err != nil && !strings.Contains(s.Err.Error(), tt.err) {
				t.Errorf("Err is %v; want %q", s.Err, tt.err)
			}
			if _, known := s.Age(); known != (tt.want == FromLastGood) {
				t.Errorf("age known: %v", known)
			}
		})
	}
}

// Whatever the provider returns, a good value stays in use until the next good one, and a bad answer does not
// prevent later fetches.
func TestABadAnswerNeverReplacesAGoodValue(t *testing.T) {
	tests := map[string]struct {
		bad      script
		rejected bool
		want     string
	}{
		"an error":         {fail("refused"), false, "fetching script: refused"},
		"half a document":  {serve("2", good(2)[:5]), true, "decoding JSON"},
		"an invalid one":   {serve("2", []byte(`{"N":2}`)), true, "version 2) is rejected: Twice is 0"},
		"one too large":    {serve("2", append(good(2), make([]byte, 4096)...)), true, "more than 4096 bytes"},
		"an empty one":     {serve("2", nil), true, "is empty"},
		"a decoder panics": {serve("2", []byte(`"decoder"`)), true, "Decode panicked: no"},
		"the check panics": {serve("2", []byte(`{"N":666}`)), true, "Validate panicked: no"},
		"it panics": {func(context.Context, Request) (Document, error) { panic(errors.New("nil map")) },
			false, "Fetch panicked: nil map"},
		"it ends at its deadline": {hang, false, "deadline exceeded"},
		"the check hangs":         {serve("2", []byte(`{"N":667}`)), false, "fetching script: "},
		"unchanged, but what":     {func(context.Context, Request) (Document, error) { return Document{}, ErrUnchanged }, false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var reported collected
				c := open(t, Options[settings]{
					Provider: steps(serve("1", good(1)), tt.bad, serve("3", good(3))),
					Timeout:  5 * time.Second, MaxSize: 4096, OnError: reported.add,
					Decode: func(data []byte, into *settings) error {
						if string(data) == `"decoder"` {
							panic("no")
						}
						return JSON(data, into)
					},
					Validate: func(s settings) error {
						switch s.N {
						case 666:
							panic("no")
						case 667:
							<-release
						}
						return s.Validate()
					},
				})
				if err := c.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				var seen []int
				for range 600 { // ten minutes, enough for three fetches
					if n := c.Get().N; len(seen) == 0 || seen[len(seen)-1] != n {
						seen = append(seen, n)
					}
					s := c.Snapshot()
					if s.Err != nil {
						if !strings.Contains(s.Err.Error(), tt.want) {
							t.Fatalf("Err is %v; want %q in it", s.Err, tt.want)
						}
						var r *RejectedError
						if errors.As(s.Err, &r) != tt.rejected || (s.Failures == 0) != tt.rejected {
							t.Fatalf("%d failures, %v; rejected: %v", s.Failures, s.Err, tt.rejected)
						}
						if s.Value.N != 1 || s.Version != "1" {
							t.Fatalf("the value is %d of version %s", s.Value.N, s.Version)
						}
					}
					time.Sleep(time.Second)
					if name == "the check hangs" && c.Snapshot().Failures > 2 {
						select {
						case <-release:
						default:
							close(release)
						}
					}
				}
				if got, want := fmt.Sprint(seen), "[1 3]"; got != want {
					t.Errorf("values %s; want %s", got, want)
				}
				if tt.want != "" {
					reported.has(t, tt.want)
				}
				if s := c.Snapshot(); s.Err != nil || s.Failures != 0 || s.Generation != 3 || s.Source != FromProvider {
					t.Errorf("at the end: %+v", s)
				}
			})
		})
	}
}

// A rejected document is reported once, and its error stays in Snapshot.Err while the server returns it.
func TestARejectedDocumentIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported collected
		var asked []string
		var back atomic.Bool // the server returns the first document again
		c := open(t, Options[settings]{
			Provider: script(func(_ context.Context, r Request) (Document, error) {
				asked = append(asked, r.Version)
				switch {
				case len(asked) == 1 || back.Load():
					return Document{"1", good(1)}, nil
				case r.Version == "2":
					return Document{}, ErrUnchanged
				}
				return Document{"2", []byte("x")}, nil
			}),
			Validate: settings.Validate, OnError: reported.add,
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(reported.all) != 1 {
			t.Errorf("reported %q; want one", reported.all)
		}
		if s := c.Snapshot(); s.Err == nil || s.Value.N != 1 || s.Generation != 2 {
			t.Errorf("%+v", s)
		}
		// The server returns the document in use again: the value does not change, and the error is gone.
		back.Store(true)
		time.Sleep(2 * time.Minute)
		if s := c.Snapshot(); s.Err != nil || s.Generation != 2 || s.Version != "1" {
			t.Errorf("after the way back: %+v", s)
		}
	})
}

func TestWaitEndsWithItsDeadlineAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[settings]{Provider: fail("connection refused")})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		err := c.Wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 3*time.Second { // virtual time
			t.Errorf("it took %v", took)
		}
		c.Close()
		if err := c.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A provider that never returns is not called again, and does not block Close.
func TestAProviderThatHangsIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, calls := make(chan struct{}), atomic.Int64{}
		c := open(t, Options[settings]{Timeout: time.Second, Provider: script(func(context.Context, Request) (Document, error) {
			calls.Add(1)
			<-release
			return Document{"1", good(1)}, nil
		})})
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls at once; want 1", n)
		}
		if s := c.Snapshot(); s.Failures < 3 || !strings.Contains(s.Err.Error(), "has not returned yet") {
			t.Errorf("%d failures, %v", s.Failures, s.Err)
		}
		began := time.Now()
		c.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v", took)
		}
		close(release)
	})
}

func TestListenersGetTheLastValueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 500
		n := 0
		var reported collected
		c := open(t, Options[settings]{
			OnError: reported.add, LongPoll: time.Minute, Refresh: time.Second,
			Provider: script(func(ctx context.Context, r Request) (Document, error) {
				if n == last {
					return hang(ctx, r)
				}
				n++
				return Document{fmt.Sprint(n), good(n)}, nil
			}),
		})
		got := map[string][]int{}
		var mu sync.Mutex
		listen := func(name string, f func(int)) func() {
			return c.OnChange(func(s Snapshot[settings]) {
				mu.Lock()
				got[name] = append(got[name], s.Value.N)
				mu.Unlock()
				f(s.Value.N)
			})
		}
		release := make(chan struct{})
		// In the synctest bubble no time passes until the slow listener sleeps, so all listeners begin with
		// generation 0, or all with 1.
		listen("fast", func(int) {})
		listen("panics", func(n int) { panic(fmt.Sprint("at ", n)) })
		listen("blocks", func(n int) {
			if n > 1 {
				<-release
			}
		})
		stop := listen("stopped", func(int) {})
		listen("slow", func(int) { time.Sleep(700 * time.Millisecond) })
		time.Sleep(5 * time.Second)
		stop()
		stop()
		mu.Lock()
		stopped := len(got["stopped"])
		mu.Unlock()
		time.Sleep(time.Hour)
		close(release)
		synctest.Wait()
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"fast", "slow", "panics", "blocks"} {
			list := got[name]
			if list[0] > 1 || list[len(list)-1] != last {
				t.Errorf("%s began with %d and ended with %d", name, list[0], list[len(list)-1])
			}
			for i := 1; i < len(list); i++ {
				if list[i] <= list[i-1] {
					t.Errorf("%s got %d after %d", name, list[i], list[i-1])
				}
			}
		}
		if len(got["fast"]) < last {
			t.Errorf("the fast one got %d values of %d", len(got["fast"]), last)
		}
		if len(got["slow"]) >= last || len(got["blocks"]) > 4 {
			t.Errorf("the slow one got %d values, the one that blocks %d; want fewer, and at most 4", len(got["slow"]), len(got["blocks"]))
		}
		if len(got["stopped"]) != stopped || stopped == 0 {
			t.Errorf("the stopped one got %d values, then %d", stopped, len(got["stopped"]))
		}
		reported.has(t, "a function of OnChange panicked: at 7")
	})
}

// A value must share no maps with the previous value, because the decoder would write into the map that is in
// use.
func TestDocumentsDoNotShareTheDefault(t *testing.T) {
	later := func(ctx context.Context, r Request) (Document, error) { // only after the test has read the default
		time.Sleep(time.Second)
		return serve("1", []byte(`{"Names":{"a":1}}`))(ctx, r)
	}
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[settings]{
			Default:  func() settings { return settings{Names: map[string]int{"kept": 1}} },
			Provider: steps(later, serve("2", []byte(`{"Names":{"b":1}}`))),
		})
		start := c.Get()
		time.Sleep(2 * time.Second)
		first := c.Get()
		time.Sleep(2 * time.Minute)
		if got, want := fmt.Sprint(start.Names, first.Names, c.Get().Names), "map[kept:1] map[a:1 kept:1] map[b:1 kept:1]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// After a restart, the version of the last good document is sent only to the provider from which the document
// came.
func TestTheVersionOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "last")
	var asked []string
	run := func(p Provider) Snapshot[settings] {
		var s Snapshot[settings]
		synctest.Test(t, func(t *testing.T) {
			c := open(t, Options[settings]{Provider: p, LastGood: path, Validate: settings.Validate})
			if err := c.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			s = c.Snapshot()
			c.Close()
		})
		return s
	}
	p := script(func(_ context.Context, r Request) (Document, error) {
		asked = append(asked, r.Version)
		if r.Version == `"a"` {
			return Document{}, ErrUnchanged
		}
		return Document{`"a"`, good(5)}, nil
	})
	if s := run(p); s.Generation != 2 || s.Value.N != 5 {
		t.Errorf("first process: %+v", s)
	}
	if s := run(p); s.Generation != 1 || s.Value.N != 5 || s.Source != FromProvider || s.From != "script" || s.Err != nil {
		t.Errorf("second process: %+v", s)
	}
	if s := run(renamed{p}); s.Generation != 1 || s.From != "another" {
		t.Errorf("the same document at another centre: %+v", s)
	}
	if s := run(renamed{p}); s.Generation != 1 {
		t.Errorf("second process there: %+v", s)
	}
	if got, want := fmt.Sprintf("%q", asked), `["" "\"a\"" "" "\"a\""]`; got != want {
		t.Errorf("versions %s; want %s", got, want)
	}
}

type renamed struct{ Provider }

func (renamed) String() string { return "another" }
