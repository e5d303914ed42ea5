package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

const proxyHealthy = contract.ProxyContainer + " is healthy"

// publish publishes the record of a running container. The test process stands for the container's process.
func (p *pod) publish(name string) {
	p.t.Helper()
	p.add(name)
	w, err := state.Open(p.place(name), state.Record{Phase: state.Running})
	check(p.t, err)
	p.t.Cleanup(func() { w.Close() })
}

func TestTheGateSaysWhyTheProxyIsNotReady(t *testing.T) {
	p := newPod(t)
	p.publish(contract.ProxyContainer)
	ready := `{"ready":false,"level":"outbound","reasons":[
		{"code":"certificate-missing","message":"the control plane outriderd:15012 is not reached: lookup outriderd: no such host"},
		{"code":"no-control-plane","message":"not connected to the control plane yet"}]}`
	check(t, os.WriteFile(filepath.Join(p.place(contract.ProxyContainer).Own, contract.ReadyFile), []byte(ready), 0o644))
	c := p.start(spec{Name: "app", After: []string{proxyHealthy + ", within 50ms"}})
	if code := p.ended(c); code != GaveUp {
		t.Errorf("status %d, want %d", code, GaveUp)
	}
	want := "it runs, not ready: certificate-missing: the control plane outriderd:15012 is not reached: lookup outriderd: no such host; see kubectl logs POD -c outrider-proxy"
	if got := c.Log(); !strings.Contains(got, want) {
		t.Errorf("the log is %q, want %q in it", got, want)
	}
}

// Whatever text another container publishes or a server answers, the printed reason is one short
// line.
func TestAReasonOfAnotherContainerIsOneShortLine(t *testing.T) {
	reason := func(message string) func(string) error {
		return func(name string) error {
			quoted, err := json.Marshal(message)
			return errors.Join(err, os.WriteFile(name, fmt.Appendf(nil, `{"reasons":[{"code":"c","message":%s}]}`, quoted), 0o644))
		}
	}
	text := func(text string) func(string) error {
		return func(name string) error { return os.WriteFile(name, []byte(text), 0o644) }
	}
	tests := map[string]struct {
		write func(name string) error
		want  string
	}{
		"none":               {func(string) error { return nil }, ""},
		"a reason":           {reason("not yet"), "c: not yet"},
		"several lines":      {reason("a\nb\r\n\tc"), "c: a b c"},
		"a terminal's codes": {reason("\x1b[2Ja\u202eb"), `c: \x1b[2Ja\u202eb`},
		"a long one":         {reason(strings.Repeat("x", 5000)), "c: " + strings.Repeat("x", lineLimit-3)},
		"no reasons":         {text(`{"ready":true}`), ""},
		"another type":       {text(`{"reasons":[{"code":1}]}`), ""},
		"half":               {text(`{"reasons":[{"code"`), ""},
		"1 MiB":              {reason(strings.Repeat("x", 1<<20)), ""},
		"a link":             {func(name string) error { return os.Symlink("/etc/passwd", name) }, ""},
		"a directory":        {func(name string) error { return os.Mkdir(name, 0o755) }, ""},
		"a FIFO":             {func(name string) error { return unix.Mkfifo(name, 0o644) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &gate{o: Options{Place: state.Place{States: t.TempDir()}}}
			check(t, os.Mkdir(filepath.Join(g.o.Place.States, "proxy"), 0o755))
			check(t, tt.write(filepath.Join(g.o.Place.States, "proxy", contract.ReadyFile)))
			if got := g.notReady("proxy"); got != tt.want {
				t.Errorf("reason %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWhatIsMissing(t *testing.T) {
	e := startup.Edge{From: "cache", To: "app", After: startup.Healthy}
	seen := func(alive bool, r state.Record) state.Seen { return state.Seen{Known: true, Alive: alive, Record: r} }
	tests := map[string]struct {
		seen state.Seen
		got  answer
		want string
	}{
		"no record":      {want: "it has not started; kubectl describe pod shows why"},
		"no answer":      {got: answer{problem: "connection refused"}, want: "no answer: connection refused; kubectl describe pod shows whether it has started"},
		"another answer": {got: answer{responded: true, problem: "status 503: no\rcluster"}, want: "it answers status 503: no cluster; see kubectl logs POD -c cache"},
		"it runs":        {seen: seen(true, state.Record{Phase: state.Running}), want: "it runs; see kubectl logs POD -c cache"},
		"it was killed":  {seen: seen(false, state.Record{Phase: state.Running}), want: "it was killed; see kubectl logs POD -c cache --previous"},
		"it ended":       {seen: seen(false, state.Record{Phase: state.Ended, Code: 3}), want: "it ended with status 3; see kubectl logs POD -c cache --previous"},
		"it waits": {seen: seen(true, state.Record{Phase: state.Waiting, Waited: []state.Wait{{For: "db is healthy", By: "state"}, {For: "proxy is\nhealthy"}}}),
			want: "it waits itself until proxy is healthy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &gate{o: Options{Place: state.Place{States: t.TempDir()}}, polls: polling{pollers: map[string]*poller{"cache": {answer: tt.got}}}}
			if got := g.missing(e, tt.seen); got != tt.want {
				t.Errorf("missing is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTooEarlyForALine(t *testing.T) {
	just := lines{at: time.Now().Add(time.Hour)} // however slow this test is
	for _, tt := range []struct {
		l      lines
		waited time.Duration
		want   bool
	}{{lines{}, sayAfter - 1, true}, {lines{}, sayAfter, false}, {just, time.Hour, true}} {
		if got := tt.l.tooEarly(tt.waited); got != tt.want {
			t.Errorf("%v after a wait of %s: too early is %v", tt.l, tt.waited, got)
		}
	}
}

// A new reason is printed early, but only a limited number of times: alternating reasons must
// not fill the log.
func TestANewReasonIsPrintedEarly(t *testing.T) {
	var l lines
	say := func(reasons string) int {
		if !l.due(time.Hour, reasons) {
			return 0
		}
		l.at = l.at.Add(-sayAfter)
		return 1
	}
	if n := say("a"); n != 1 {
		t.Errorf("the first one: %d lines", n)
	}
	if n := say("a"); n != 0 {
		t.Errorf("the same reason: %d lines", n)
	}
	n := 0
	for i := range 10 * sayChanges {
		n += say([]string{"b", "a"}[i%2])
	}
	if n != sayChanges {
		t.Errorf("%d lines for reasons that alternate, want %d", n, sayChanges)
	}
}

// The printed reason contains the body of an answer. A body that never ends does not delay the
// next request.
func TestTheAnswerIsPartOfTheReason(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "server is not live\nmore")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	u, err := ParseAddress(s.URL)
	check(t, err)
	p := &poller{url: u}
	want := answer{responded: true, problem: "status 503: server is not live"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*holdFor)
	defer cancel()
	if got := p.get(ctx, p.client()); got != want || ctx.Err() != nil {
		t.Errorf("answer %+v, want %+v; %v", got, want, ctx.Err())
	}
}
