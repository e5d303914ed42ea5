// Package load is load on a mesh and what may fail under it: clients that call at a fixed rate
// ([Run]), services that call one another ([Tier]), and a judge of failed calls ([Kill]). The
// pods of the suite run it, and the suite reads what they print.
package load

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Limits of a load.
const (
	// Timeout is when a call has failed. No mesh may need so long, and every pod's grace is
	// over by then.
	Timeout = 15 * time.Second
	// silence is how long the slow client writes nothing on its new connection: longer than a
	// proxy that looks at the first bytes waits for them.
	silence = 500 * time.Millisecond
	// reported is how many failures of a client are printed one by one, and how many time-outs.
	reported = 200
	// Starved is how late a call may be sent. A generator that got no processor has not called
	// at its rate, and its result does not count.
	Starved = 5 * time.Second
)

// Options of a load.
type Options struct {
	URL    string
	Want   string                 // the right answer
	Pod    string                 // that calls, for reports
	Rate   int                    // calls a second, of each client
	Report func(Failure)          // each of the first failures of a client; not at the same time
	Every  func(map[string]Tally) // once a second: of all calls so far
}

// A Tally is what became of the calls of one client.
type Tally struct {
	Sent, Answered, Failed, TimedOut int
	Late                             time.Duration // the latest call, behind its time
	P50, P99, Slowest                time.Duration // of calls that were answered; at the end only
}

// Clients are the ways to call: over connections that stay, a connection for each call, and one
// that writes nothing at first.
var Clients = []string{"keep-alive", "short", "slow-first-byte"}

// Run calls at the rate of o by each client, until ctx ends and the last call has come back.
// The times of calls are fixed when it begins: a call that is late is sent all the same, and
// does not wait for those before it.
func Run(ctx context.Context, o Options) map[string]Tally { return run(ctx, o, client) }

func run(ctx context.Context, o Options, client func(name string) sender) map[string]Tally {
	l := &tallies{o: o, of: map[string]*tally{}}
	for _, name := range Clients {
		l.of[name] = &tally{}
	}
	began := time.Now()
	var all sync.WaitGroup
	for i, name := range Clients {
		// Spread over the time between two calls.
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
	took []time.Duration // of calls that were answered
}

// calls makes the calls of one client.
func (l *tallies) calls(ctx context.Context, name string, send sender, first time.Time) {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	// What comes back in time at the latest fits; more waits, and then is late.
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
		underWay.Go(func() {
			defer func() { <-slots }()
			// Calls that were sent come back, also when no more are.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
			defer cancel()
			began := time.Now()
			_, failure := call(ctx, send, l.o.Pod, l.o.URL, l.o.Want)
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

// client is that of a name.
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
