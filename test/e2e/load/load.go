// Package load puts a load on a mesh: clients that call at a fixed rate ([Run]), and services that call
// one another ([Tier]). It also has the rules for the failed calls that are excused ([Kill]). The pods of
// the suite run the load, and the suite reads their output.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Limits of a load.
const (
	// Timeout is the time limit of a call. It is longer than a call may take in any mesh, and not
	// shorter than the grace period of any pod.
	Timeout = 15 * time.Second
	// silence is the time for which the slow client writes nothing on a new connection. It is longer
	// than the time for which a proxy waits for first bytes to inspect.
	silence = 500 * time.Millisecond
	// reported is the maximum number of a client's time-outs that are reported in detail. The same maximum applies to
	// the client's other failures.
	reported = 200
	// Starved is the maximum delay of a call behind its schedule. If a call is later, the load generator
	// got too little processor time, and time-outs are not judged.
	Starved = 5 * time.Second
)

// Options of a load.
type Options struct {
	URL    string
	Want   string                 // the expected answer
	Pod    string                 // the calling pod, for reports
	Rate   int                    // calls that each client makes in a second
	Report func(Failure)          // called for the first failures of each client, see [reported]; not concurrently
	Every  func(map[string]Tally) // called once a second with all results so far
}

// A Tally holds the results of one client's calls.
type Tally struct {
	Sent, Answered, Failed, TimedOut int
	Late                             time.Duration // maximum delay of a call behind its schedule
	P50, P99, Slowest                time.Duration // latencies of answered calls; only in the result of Run
}

// Clients are the names of the clients: one has persistent connections, one opens a connection for each
// call, and one opens a connection for each call and writes nothing on it at first.
var Clients = []string{"keep-alive", "short", "slow-first-byte"}

// posting are the clients of which every second call is a POST with a number of its own.
var posting = []string{"keep-alive", "short"}

// Run makes calls with each client, at the rate in the options, until ctx ends and the last call has returned. The
// schedule of the calls is fixed at the start: a late call is still sent, and does not wait for earlier ones.
func Run(ctx context.Context, o Options) map[string]Tally { return run(ctx, o, client) }

func run(ctx context.Context, o Options, client func(name string) sender) map[string]Tally {
	l := &tallies{o: o, of: map[string]*tally{}}
	for _, name := range Clients {
		l.of[name] = &tally{}
	}
	began := time.Now()
	var all sync.WaitGroup
	for i, name := range Clients {
		// Spread the clients' first calls over the interval between two calls.
		first := began.Add(time.Second / time.Duration(o.Rate) * time.Duration(i) / time.Duration(len(Clients)))
		send := client(name)
		all.Go(func() { l.calls(ctx, name, send, first) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for second := time.NewTicker(time.Second); ; {
		select {
		case <-second.C:
			o.Every(l.sum(false))
		case <-done:
			second.Stop()
			return l.sum(true)
		}
	}
}

type tallies struct {
	o  Options
	mu sync.Mutex
	of map[string]*tally // by client
}

type tally struct {
	Tally
	took []time.Duration // response times of the answered calls
}

// calls makes the calls of one client.
func (l *tallies) calls(ctx context.Context, name string, send sender, first time.Time) {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	// The number of slots suffices if every call returns within the timeout; otherwise later calls wait and are late.
	slots := make(chan struct{}, l.o.Rate*int(Timeout/time.Second)+l.o.Rate)
	for i := 0; ; i++ {
		due := first.Add(time.Second / time.Duration(l.o.Rate) * time.Duration(i))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		slots <- struct{}{}
		l.mu.Lock()
		t := l.of[name]
		t.Sent++
		t.Late = max(t.Late, time.Since(due))
		l.mu.Unlock()
		number := ""
		if i%2 == 1 && slices.Contains(posting, name) {
			number = fmt.Sprintf("%s-%s-%d", l.o.Pod, name, i)
		}
		underWay.Go(func() {
			defer func() { <-slots }()
			// A call that was sent is completed even if ctx ends.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
			defer cancel()
			began := time.Now()
			_, failure := call(ctx, send, l.o.Pod, l.o.URL, number, l.o.Want)
			l.add(name, time.Since(began), failure)
		})
	}
}

func (l *tallies) add(name string, took time.Duration, failure *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.of[name]
	if failure == nil {
		t.Answered++
		t.took = append(t.took, took)
		return
	}
	t.Failed++
	like := t.Failed - t.TimedOut
	if failure.TimedOut {
		t.TimedOut++
		like = t.TimedOut
	}
	if like <= reported {
		failure.Client = name
		l.o.Report(*failure)
	}
}

func (l *tallies) sum(final bool) map[string]Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Tally{}
	for name, t := range l.of {
		if n := len(t.took); final && n > 0 {
			slices.Sort(t.took)
			t.P50, t.P99, t.Slowest = t.took[n/2], t.took[n*99/100], t.took[n-1]
		}
		out[name] = t.Tally
	}
	return out
}

// client returns the sender of the client with this name.
func client(name string) sender {
	switch name {
	case "keep-alive":
		return kept()
	case "short":
		t := transport()
		t.DisableKeepAlives = true
		return through(t)
	}
	return slowly
}
