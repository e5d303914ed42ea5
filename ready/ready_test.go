package ready

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Start the goroutine of package signal here; it must not start within the synctest bubble of a test.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	os.Exit(m.Run())
}

// silent is for tests that do not check the log.
var silent = Log(slog.New(slog.DiscardHandler))

func TestWrongOptionsAreErrorsOfNew(t *testing.T) {
	never := func(context.Context) error { return nil }
	for name, tt := range map[string]struct {
		options []Option
		want    string
	}{
		"nothing":                     {nil, "nothing to wait for"},
		"nil":                         {[]Option{nil}, "an option is nil"},
		"no time":                     {[]Option{Proxy(), For(0)}, "ready.For(0s): want more than 0"},
		"a negative pause":            {[]Option{Proxy(), Every(-1)}, "ready.Every(-1ns): want more than 0"},
		"no attempt":                  {[]Option{Proxy(), Attempt(0)}, "ready.Attempt(0s)"},
		"two times":                   {[]Option{Proxy(), For(1), For(2)}, "ready.For is given twice"},
		"both policies":               {[]Option{Proxy(), Fail, Continue}, "the policy is given twice"},
		"an unknown policy":           {[]Option{Proxy(), Policy("go")}, `policy "go": want fail or continue`},
		"both levels":                 {[]Option{Proxy(), Full, Outbound}, "the level is given twice"},
		"an unknown level":            {[]Option{Proxy(), Level("all")}, `level "all": want outbound or full`},
		"a level without a proxy":     {[]Option{Full, On("tcp://a:1")}, "level full is the proxy's"},
		"two proxies by two options":  {[]Option{Proxy(), Proxy("istio")}, "ready.Proxy is given twice"},
		"an unknown proxy":            {[]Option{Proxy("isto")}, `proxy "isto" is unknown: want outrider, istio`},
		"none and another one":        {[]Option{Proxy("none", "istio")}, "none must be alone"},
		"a proxy without a host":      {[]Option{Proxy("http:///ready")}, "the host is missing"},
		"a proxy's port":              {[]Option{Proxy("http://a:99999/")}, "port 99999: want a number from 1 to 65535"},
		"a proxy's scheme":            {[]Option{Proxy("tcp://a:1")}, "want http://HOST:PORT/PATH or unix:///PATH"},
		"a proxy's password":          {[]Option{Proxy("http://u:secret@a/")}, "not supported"},
		"no dependency":               {[]Option{On()}, "no dependency is given"},
		"an empty dependency":         {[]Option{On("")}, "want an address"},
		"tcp without a port":          {[]Option{On("tcp://db")}, "tcp://db: the port is missing"},
		"tcp with a path":             {[]Option{On("tcp://db:1/x")}, "want tcp://HOST:PORT"},
		"tcp with a query":            {[]Option{On("tcp://db:1?x=1")}, "want tcp://HOST:PORT"},
		"a port that is none":         {[]Option{On("grpc://db:0")}, "port 0: want"},
		"http without a host":         {[]Option{On("http://:80/")}, "the host is missing"},
		"http with an empty port":     {[]Option{On("http://a:/")}, "the port is missing"},
		"a password":                  {[]Option{On("http://user:secret@a/")}, "use ready.Check"},
		"a password in a broken text": {[]Option{On("http://user:secret@a:b:c/")}, "a dependency's address"},
		"a relative socket":           {[]Option{On("unix://run/x.sock")}, "want unix:///PATH"},
		"no file":                     {[]Option{On("file://")}, "want file:///PATH"},
		"an unknown scheme":           {[]Option{On("redis://a:1")}, `scheme "redis" is unknown: want tcp, http`},
		"a container's name":          {[]Option{On("Cache")}, "or a container as"},
		"a container's condition":     {[]Option{On("cache is fine")}, "started, healthy, completed"},
		"a path for a container":      {[]Option{On("../x is healthy")}, "or a container as"},
		"a check without a function":  {[]Option{Check("x", nil)}, "ready.Check"},
		"a check without a name":      {[]Option{Check("", never)}, "ready.Check"},
		"no log":                      {[]Option{Proxy(), Log(nil)}, "ready.Log(nil)"},
		"a name with a line break":    {[]Option{Proxy(), Name("a\nb")}, "want printable characters"},
		"a relative directory":        {[]Option{Proxy(), StateDirs("a", "")}, "want an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := New(tt.options...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("New is %v, %v; want an error with %q", w, err, tt.want)
			}
			if err := Wait(t.Context(), tt.options...); err == nil {
				t.Error("Wait is no error")
			}
		})
	}
}

func TestTheVariableDecides(t *testing.T) {
	for _, tt := range []struct {
		env   map[string]string
		at    []string
		names string
		none  string
		err   string
	}{
		{nil, nil, "proxy", "", ""},
		{nil, []string{"istio"}, "proxy istio", "", ""},
		{nil, []string{"none"}, "", "ready.Proxy is none", ""},
		{map[string]string{"DAPR_HTTP_PORT": "3501"}, nil, "proxy; proxy dapr", "", ""},
		{map[string]string{"DAPR_HTTP_PORT": "x"}, nil, "", "", `the variable DAPR_HTTP_PORT: DAPR_HTTP_PORT="x": want a port`},
		{map[string]string{"OUTRIDER_MESH": "none"}, nil, "", "the variable OUTRIDER_MESH is none", ""},
		{map[string]string{"OUTRIDER_MESH": "none"}, []string{"istio"}, "proxy istio", "", ""},
		{map[string]string{"OUTRIDER_MESH": "linkerd, dapr"}, nil, "proxy linkerd; proxy dapr", "", ""},
		{map[string]string{"OUTRIDER_MESH": "http://localhost:9902/ready?x=y"}, nil, "proxy http://localhost:9902/ready", "", ""},
		{map[string]string{"OUTRIDER_MESH": "yes"}, nil, "", "", `the variable OUTRIDER_MESH: proxy "yes" is unknown`},
	} {
		got, none, err := place{own: "/own", states: "/states", level: Outbound}.proxies(tt.at, func(name string) string { return tt.env[name] })
		var names []string
		for _, c := range got {
			names = append(names, c.name)
		}
		if strings.Join(names, "; ") != tt.names || none != tt.none || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v %v: %q, %q, %v", tt.env, tt.at, names, none, err)
		}
	}
}

// after returns a check that succeeds after a time.
func after(d time.Duration) func(context.Context) error {
	began := time.Now()
	return func(context.Context) error {
		if time.Since(began) < d {
			return errors.New("too early")
		}
		return nil
	}
}

func TestAWaitEndsWithTheLastCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Wait(t.Context(), silent, Every(time.Millisecond), Check("a", after(3*time.Second)), Check("b", after(5*time.Second)))
		if d := time.Since(began); err != nil || d < 5*time.Second || d > 5*time.Second+2*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// Every condition must hold at the end, even one that held earlier while another was still missing.
func TestEverythingHoldsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		flapping := func(context.Context) error {
			if d := time.Since(began); d > time.Second && d < 20*time.Second {
				return errors.New("gone again")
			}
			return nil
		}
		err := Wait(t.Context(), silent, Every(time.Millisecond), Check("flapping", flapping), Check("late", after(10*time.Second)))
		if d := time.Since(began); err != nil || d < 20*time.Second || d > 20*time.Second+5*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// A wait also ends if the answers of conditions take longer than 250 ms ([fresh]).
func TestSlowConditionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		takes := func(d time.Duration) func(context.Context) error {
			return func(context.Context) error { time.Sleep(d); return nil }
		}
		if err := Wait(t.Context(), silent, Check("a", takes(400*time.Millisecond)), Check("b", takes(900*time.Millisecond))); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 1300*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAnAttemptGetsMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		slow := func(ctx context.Context) error { // like a look-up at a name server that answers after 3 s
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := Wait(t.Context(), silent, Check("slow", slow)); err != nil || time.Since(began) > 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		err := Wait(t.Context(), silent, Check("slow", slow), Attempt(2*time.Second), For(10*time.Second))
		var e *Error
		if !errors.As(err, &e) || len(e.Missing) != 1 || e.Missing[0].Err.Error() != "no answer within 2s" {
			t.Errorf("with a limit: %v", err)
		}
	})
}

func TestPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		lines := Log(slog.New(slog.NewTextHandler(&log, nil)))
		never := func(context.Context) error { return errors.New("connection refused") }
		w, err := New(lines, For(time.Minute), Check("db", never), Check("there", after(0)))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = w.Wait(t.Context())
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.After != time.Minute || time.Since(began) != time.Minute ||
			err.Error() != "ready: not ready after 1m0s (context deadline exceeded): db (connection refused)" {
			t.Errorf("Fail: %v", err)
		}
		select {
		case <-w.Done():
			t.Error("Done after a failure")
		default:
		}
		began = time.Now()
		w, _ = New(lines, For(time.Minute), Continue, Check("db", never))
		if err := w.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("Continue: %v after %v", err, time.Since(began))
		}
		<-w.Done()
		if !strings.Contains(log.String(), `level=WARN msg="continuing without" missing="db (connection refused)" after=1m0s`) {
			t.Errorf("the log: %s", &log)
		}
		if err := w.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("again: %v", err)
		}

		// Continue applies only to the time of For.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Wait(ctx, lines, Continue, Check("db", never)); !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.After != time.Second {
			t.Errorf("ctx ends: %v", err)
		}
		mine := errors.New("mine")
		ended, cancelWith := context.WithCancelCause(t.Context())
		cancelWith(mine)
		if err := Wait(ended, lines, Continue, Check("there", after(0))); !errors.Is(err, mine) {
			t.Errorf("ctx has ended: %v", err)
		}
	})
}

func TestWhatCanNeverHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hopeless := func(context.Context, *attempt) error { return finalError{errors.New("not here")} }
		began := time.Now()
		for _, policy := range []Policy{Fail, Continue} {
			w, err := New(silent, policy, Check("late", after(time.Second)), Every(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			w.conditions = append(w.conditions, &condition{name: "x", check: hopeless, busy: make(chan struct{}, 1)})
			err = w.Wait(t.Context())
			switch d := time.Since(began); {
			case policy == Fail && (err == nil || !strings.Contains(err.Error(), "x (not here)") || d != 0):
				t.Errorf("%s: %v after %v", policy, err, d)
			case policy == Continue && (err != nil || d < time.Second || len(w.Missing()) != 1): // Wait must have waited for the other conditions
				t.Errorf("%s: %v after %v, %v", policy, err, d, w.Missing())
			}
		}
	})
}

// The log gets at most one line per second, whatever happens.
func TestLinesInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []time.Duration
		var texts []string
		began, n := time.Now(), 0
		h := &recorder{func(r slog.Record) {
			times = append(times, time.Since(began))
			r.Attrs(func(a slog.Attr) bool { texts = append(texts, a.String()); return true })
		}}
		changing := func(context.Context) error {
			if time.Since(began) > 30*time.Second {
				return errors.New("always the same")
			}
			n++
			return fmt.Errorf("reason %d", n)
		}
		if err := Wait(t.Context(), Log(slog.New(h)), For(10*time.Minute), Check("db", changing)); err == nil {
			t.Fatal("no error")
		}
		for i := 1; i < len(times); i++ {
			if times[i]-times[i-1] < time.Second {
				t.Errorf("two lines within %v", times[i]-times[i-1])
			}
		}
		if len(times) < 30 || len(times) > 45 || times[0] != time.Second {
			t.Errorf("%d lines, the first after %v", len(times), times[0])
		}
		if len(texts) > 0 && !strings.HasPrefix(texts[0], "for=db (reason ") {
			t.Errorf("the first line: %s", texts[0])
		}
	})
}

type recorder struct{ add func(slog.Record) }

func (*recorder) Enabled(context.Context, slog.Level) bool        { return true }
func (h *recorder) Handle(_ context.Context, r slog.Record) error { h.add(r); return nil }
func (h *recorder) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h *recorder) WithGroup(string) slog.Handler                 { return h }

// Whatever a condition does, Wait returns by its limit; a wait that does not succeed ends exactly at the limit.
func TestNoCallExceedsItsDeadline(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			span := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
			hang := make(chan struct{})
			defer close(hang)
			options := []Option{silent, For(1 + span(time.Minute))}
			if r.IntN(2) == 0 {
				options = append(options, Continue)
			}
			if r.IntN(2) == 0 {
				options = append(options, Attempt(1+span(20*time.Second)))
			}
			if r.IntN(2) == 0 {
				options = append(options, Every(1+span(5*time.Second)))
			}
			for i := range 1 + r.IntN(4) {
				takes, from, kind, calls := span(10*time.Second), time.Now().Add(span(2*time.Minute)), r.IntN(5), 0
				options = append(options, Check(fmt.Sprint(i), func(ctx context.Context) error {
					switch calls++; kind {
					case 0: // hangs and ignores ctx
						<-hang
					case 1: // slow, and ignores ctx
						time.Sleep(takes)
					case 2: // slow
						select {
						case <-time.After(takes):
						case <-ctx.Done():
							return ctx.Err()
						}
					case 3: // succeeds only sometimes
						if calls%3 != 0 {
							return errors.New("flapping")
						}
					}
					if time.Now().Before(from) {
						return errors.New("too early")
					}
					return nil
				}))
			}
			w, err := New(options...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 1+span(90*time.Second))
			defer cancel()
			end, _ := ctx.Deadline()
			latest := time.Now().Add(w.timeout)
			if end.Before(latest) {
				latest = end
			}
			err = w.Wait(ctx)
			switch late := time.Since(latest); {
			case late > 0:
				t.Errorf("seed %d: %v too late: %v", seed, late, err)
			case late < 0 && err != nil:
				t.Errorf("seed %d: %v too early: %v", seed, -late, err)
			}
			time.Sleep(10 * time.Second) // let the checks that ignore ctx end
		})
	}
}

func TestASignalEndsTheWait(t *testing.T) {
	started := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- Wait(context.Background(), silent, Continue, Check("x", func(context.Context) error {
			once.Do(func() { close(started) })
			return errors.New("no")
		}))
	}()
	<-started
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var s *SignalError
	if err := <-ended; !errors.As(err, &s) || s.Signal != syscall.SIGTERM {
		t.Errorf("%v", err)
	}
}

func TestOneWaitAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := New(silent, Check("x", after(time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { first <- w.Wait(t.Context()) }()
		synctest.Wait()
		if err := w.Wait(t.Context()); err != errTwice {
			t.Errorf("the second: %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("the first: %v", err)
		}
	})
}

func TestTheHandlerReportsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := New(silent, Every(time.Millisecond), Check("a", after(time.Second)), Check("b", after(2*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		get := func(method string) string {
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, httptest.NewRequest(method, "/readyz", nil))
			return fmt.Sprint(rec.Code, " ", strings.TrimSpace(rec.Body.String()))
		}
		want := func(want string) {
			t.Helper()
			if got := get("GET"); got != want {
				t.Errorf("%s; want %s", got, want)
			}
		}
		want(`503 {"ready":false,"missing":[{"condition":"a","error":"no answer yet"},{"condition":"b","error":"no answer yet"}]}`)
		go w.Wait(t.Context())
		time.Sleep(1500 * time.Millisecond)
		want(`503 {"ready":false,"missing":[{"condition":"b","error":"too early"}]}`)
		<-w.Done()
		want(`200 {"ready":true}`)
		if got := get("POST"); !strings.HasPrefix(got, "405") {
			t.Errorf("POST: %s", got)
		}
	})
}

// The pauses of waiters that start together differ, and are never longer than the package comment says.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at [][]time.Duration
		for range 20 {
			began := time.Now()
			var times []time.Duration
			Wait(t.Context(), silent, For(20*time.Second), Check("x", func(context.Context) error {
				times = append(times, time.Since(began))
				return errors.New("no")
			}))
			for i := 1; i < len(times); i++ {
				if d := times[i] - times[i-1]; d > time.Second || d <= 0 {
					t.Errorf("a pause of %v", d)
				}
			}
			if times[0] != 0 || len(times) < 20 || len(times) > 60 {
				t.Errorf("%d calls, the first after %v", len(times), times[0])
			}
			at = append(at, times)
		}
		if !slices.ContainsFunc(at, func(times []time.Duration) bool { return !slices.Equal(times, at[0]) }) {
			t.Error("all ask at the same times")
		}
	})
}
