package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider.dev/test/port"
)

// Each client records anything other than the expected answer as a failure, with its cause.
func TestEveryFailureIsSeen(t *testing.T) {
	raw := func(do func(net.Conn)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			do(conn)
			conn.Close()
		}
	}
	for name, tt := range map[string]struct {
		serve    http.HandlerFunc
		text     string // part of the failure's text; empty if no failure is expected
		timedOut bool
	}{
		"answered":  {serve: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }},
		"closed":    {serve: raw(func(net.Conn) {}), text: "EOF"},
		"reset":     {serve: raw(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), text: "reset by peer"},
		"cut short": {serve: raw(func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") }), text: `after "hel"`},
		"not HTTP":  {serve: raw(func(c net.Conn) { fmt.Fprint(c, "hello\r\n\r\n") }), text: "malformed"},
		"another's": {serve: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "good bye") }, text: "good bye"},
		"not there": {serve: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
		}, text: "no healthy upstream"},
		"never":        {serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, text: "i/o timeout or deadline", timedOut: true},
		"never to end": {serve: func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() }, text: "i/o timeout or deadline", timedOut: true},
	} {
		for _, by := range Clients {
			t.Run(name+"/"+by, func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(tt.serve)
				defer server.Close()
				ctx := t.Context()
				if tt.timedOut {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, silence+time.Second) // time limit: the call must time out
					defer cancel()
				}
				answer, f := call(ctx, client(by), "here", server.URL, "", "hello")
				if tt.text == "" {
					if f != nil || answer != "hello" {
						t.Errorf("answer %q, failure %+v, want none", answer, f)
					}
					return
				}
				if f == nil {
					t.Fatalf("no failure, answer %q", answer)
				}
				if f.TimedOut != tt.timedOut || !tt.timedOut && !strings.Contains(f.Text, tt.text) {
					t.Errorf("failure %+v, want one that says %q", f, tt.text)
				}
				if f.From != "here" || "http://"+f.To != server.URL || f.Connection != "new" || f.Local == "" || f.Sent == 0 || f.Ended < f.Sent {
					t.Errorf("failure %+v does not say which call it was", f)
				}
			})
		}
	}
}

func TestRefusedIsSeen(t *testing.T) {
	for _, by := range Clients {
		if _, f := call(t.Context(), client(by), "here", "http://"+port.Hold(t).String(), "", ""); f == nil || !strings.Contains(f.Text, "refused") {
			t.Errorf("%s: failure %+v, want one that says refused", by, f)
		}
	}
}

// If three tiers pass a failure on, the client's report contains the original failure.
func TestTiersPassFailuresOn(t *testing.T) {
	broken := false
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			http.Error(w, strings.Repeat("upstream connect error ", 1000), http.StatusServiceUnavailable)
			return
		}
		NewTier("back", "back-1", "", 0).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	}))
	defer back.Close()
	middle := httptest.NewServer(NewTier("middle", "middle-1", back.URL, time.Minute))
	defer middle.Close()
	front := httptest.NewServer(NewTier("front", "front-1", middle.URL, time.Minute))
	defer front.Close()
	if answer, f := call(t.Context(), kept(), "load-1", front.URL, "", "front<-middle<-back"); f != nil {
		t.Fatalf("answer %q, failure %+v", answer, f)
	}
	broken = true
	_, f := call(t.Context(), kept(), "load-1", front.URL, "", "front<-middle<-back")
	if f == nil {
		t.Fatal("no failure")
	}
	at, _ := url.Parse(back.URL)
	if root := f.Root(); f.From != "load-1" || root.From != "middle-1" || root.To != at.Host || root.Status != 503 || len(root.Text) > excerpt {
		t.Errorf("%s", f)
	}
	if kind, want := f.Kind(), ": middle -> "+at.Host+": 503 upstream connect error"; !strings.HasPrefix(kind, want) {
		t.Errorf("its kind is %q, want %q", kind, want)
	}
	if line := f.String(); !strings.Contains(line, "status 503") || strings.Count(line, "because") != 2 {
		t.Errorf("it reads: %s", line)
	}
}

// Calls are sent on schedule even if earlier calls have not returned, and all sent calls are counted.
func TestTheRateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second-time.Millisecond)
		defer cancel()
		silent := func(ctx context.Context, _ *url.URL, _ *Failure) (*http.Response, error) {
			<-ctx.Done() // until the call times out
			return nil, ctx.Err()
		}
		reports, looks := 0, 0
		got := run(ctx, Options{URL: "http://front", Rate: 30, Report: func(Failure) { reports++ }, Every: func(map[string]Tally) { looks++ }},
			func(string) sender { return silent })
		for name, n := range got {
			if n.Sent != 300 || n.Answered != 0 || n.Failed != 300 || n.TimedOut != 300 || n.Late > 0 {
				t.Errorf("%s: %+v, want 300 sent on time, and timed out", name, n)
			}
		}
		if len(got) != len(Clients) || reports != len(Clients)*reported || looks < 20 {
			t.Errorf("%d clients, %d reports, %d looks", len(got), reports, looks)
		}
	})
}

// A generator that is behind its schedule sends the missed calls late, and reports the delay.
func TestLateCallsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "keep-alive"
		l := &tallies{o: Options{URL: "http://front", Rate: 10, Report: func(Failure) {}}, of: map[string]*tally{name: {}}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		l.calls(ctx, name, func(context.Context, *url.URL, *Failure) (*http.Response, error) { return nil, net.ErrClosed }, time.Now().Add(-3*time.Second))
		if n := l.of[name]; n.Sent != 31 || n.Failed != 31 || n.Late != 3*time.Second {
			t.Errorf("%+v, want 31 calls, the first 3 s late", n.Tally)
		}
	})
}

// When a process is killed, only failures of the calls that were in flight in it are excused.
func TestExcuses(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	kill := Kill{What: "envoy", Pod: "middle-1", Service: "middle", Before: at(100), After: at(110), Back: at(130)}
	failed := func(from, to string, sent, ended int) Failure {
		return Failure{From: from, To: to, Sent: at(sent).UnixNano(), Ended: at(ended).UnixNano()}
	}
	for name, tt := range map[string]struct {
		failure Failure
		excused bool
	}{
		"a call of the pod":          {failed("middle-1", "back", 50, 101), true},
		"a call to its service":      {failed("front-1", "middle", 99, 150), true},
		"sent while it went":         {failed("front-1", "middle", 109, 150), true},
		"passed on":                  {Failure{From: "load", To: "front", Cause: &Failure{From: "front-1", To: "middle", Sent: at(50).UnixNano(), Ended: at(101).UnixNano()}}, true},
		"sent when the next serves":  {failed("front-1", "middle", 131, 150), false},
		"ended before it":            {failed("front-1", "middle", 10, 99), false},
		"of another tier's":          {failed("load", "front", 50, 150), false},
		"of another pod":             {failed("middle-2", "back", 50, 150), false},
		"its first tier, not so far": {Failure{From: "front-1", To: "middle", Sent: at(50).UnixNano(), Ended: at(150).UnixNano(), Cause: &Failure{From: "middle-2", To: "back", Sent: at(60).UnixNano(), Ended: at(140).UnixNano()}}, false},
		"it never ended":             {Failure{From: "front-1", To: "middle", Sent: at(50).UnixNano(), Ended: at(15050).UnixNano(), TimedOut: true}, false},
	} {
		if got := kill.Excuses(tt.failure); got != tt.excused {
			t.Errorf("%s: excused %t, want %t", name, got, tt.excused)
		}
		if got := len(Unexcused([]Failure{tt.failure}, []Kill{kill})) == 0; got != tt.excused {
			t.Errorf("%s: left out %t, want %t", name, got, tt.excused)
		}
	}
}

// Between the kill of a process and the time at which its successor serves, one failed call is excused for each
// connection that ended with the process.
func TestEndedConnectionsAreMetOnce(t *testing.T) {
	begin := time.Unix(1000, 0)
	kill := Kill{Pod: "middle-1", Service: "middle", Before: begin, After: begin.Add(time.Second), Back: begin.Add(3 * time.Second)}
	next := kill
	next.Before, next.After, next.Back = begin.Add(4*time.Second), begin.Add(5*time.Second), begin.Add(7*time.Second)
	var all []Failure
	meets := func(n int, after time.Duration) {
		for range n {
			all = append(all, Failure{From: "front-1", To: "middle", Sent: begin.Add(after).UnixNano(), Ended: begin.Add(after + time.Millisecond).UnixNano()})
		}
	}
	meets(100, 500*time.Millisecond) // calls in flight, of which any number is excused
	meets(pooled, 2*time.Second)
	meets(pooled, 6*time.Second)
	if left := Unexcused(all, []Kill{kill, next}); len(left) > 0 {
		t.Errorf("%d are left of one for each connection", len(left))
	}
	meets(2, 2*time.Second)
	all = append(all, Failure{From: "front-2", To: "back", Sent: begin.Add(2 * time.Second).UnixNano()})
	if left := Unexcused(all, []Kill{kill, next}); len(left) != 3 {
		t.Errorf("%d are left of two more, and one of another pod", len(left))
	}
}

// A starved machine excuses time-outs and no other failures.
func TestStarvedMachinesAreNotJudged(t *testing.T) {
	slow, broken := Failure{From: "load", To: "front", TimedOut: true}, Failure{From: "load", To: "front", Status: 503}
	behind := Failure{From: "load", To: "front", Status: Passed, Cause: &Failure{From: "front-1", To: "middle", TimedOut: true}}
	for name, tt := range map[string]struct {
		told    []Failure
		tally   Tally
		share   float64
		lost    int
		untold  int
		notSaid bool
	}{
		"all answered":                         {nil, Tally{}, 0.2, 0, 0, false},
		"all answered by a starved machine":    {nil, Tally{}, 0.9, 0, 0, false},
		"time-outs":                            {[]Failure{slow, behind}, Tally{Failed: 2, TimedOut: 1}, 0.2, 2, 0, false},
		"of a starved machine":                 {[]Failure{slow, behind}, Tally{Failed: 2, TimedOut: 1}, 0.9, 0, 0, true},
		"more than were told":                  {[]Failure{slow}, Tally{Failed: 5, TimedOut: 5}, 0.9, 0, 0, true},
		"more than were told, not starved":     {[]Failure{slow}, Tally{Failed: 5, TimedOut: 5}, 0.2, 1, 4, false},
		"a late load":                          {nil, Tally{Late: Starved + 1}, 0.2, 0, 0, true},
		"time-outs of a late load":             {[]Failure{slow}, Tally{Failed: 1, TimedOut: 1, Late: Starved + 1}, 0.2, 0, 0, true},
		"another failure of a late load":       {[]Failure{slow, broken}, Tally{Failed: 2, TimedOut: 1, Late: Starved + 1}, 0.2, 1, 0, true},
		"another failure of a starved machine": {[]Failure{slow, broken}, Tally{Failed: 4, TimedOut: 2}, 0.9, 1, 1, true},
	} {
		v := Judge(tt.told, nil, map[string]Tally{Clients[0]: tt.tally}, tt.share)
		if len(v.Lost) != tt.lost || v.Untold != tt.untold || (v.Starved != "") != tt.notSaid {
			t.Errorf("%s: %+v; want %d lost, %d untold, starved %t", name, v, tt.lost, tt.untold, tt.notSaid)
		}
	}
}

// A POST keeps its number through all tiers, and one that a service gets twice is found.
func TestPostsAreCounted(t *testing.T) {
	got := map[string][]string{}
	to := ""
	for _, name := range []string{"back", "middle", "front"} {
		tier := NewTier(name, name+"-1", to, time.Minute)
		tier.Got = func(number string) { got[tier.Pod] = append(got[tier.Pod], number) }
		server := httptest.NewServer(tier)
		defer server.Close()
		to = server.URL
	}
	for _, number := range []string{"", "1", "2"} {
		if _, f := call(t.Context(), kept(), "load-1", to, number, "front<-middle<-back"); f != nil {
			t.Fatal(f)
		}
	}
	if doubled := Doubled(got); len(got) != 3 || len(got["back-1"]) != 2 || doubled != nil {
		t.Errorf("got %v, doubled %q", got, doubled)
	}
	got["middle-2"] = []string{"2", "3"}
	got["back-2"] = []string{"3"}
	if doubled := Doubled(got); len(doubled) != 1 || doubled[0] != "middle 2" {
		t.Errorf("doubled %q, want that middle got 2 twice", doubled)
	}
}
