// Command wait measures how long after a dependency becomes ready a waiter continues. The waiters are a
// held request, "outrider-agent wait", the library ready, a command behind a gate, and the usual
// alternatives. It also measures a wait for a proxy that is ready already. In each round every way runs
// once, in random order, and its dependency becomes ready at a random moment. The command never fails
// because of a measured time.
//
//	go run ./bench/wait -n 200
//	go run ./bench/wait -agent ./outrider-agent
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/build/commands"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
)

func main() {
	n := flag.Int("n", 200, "runs of each way")
	polled := flag.Int("polled", 20, "runs of each way that polls")
	agent := flag.String("agent", "", "outrider-agent to measure (default: built from ./cmd/outrider-agent)")
	figures.Main(func() error { return measure(*n, *polled, *agent, os.Stdout) }, "n", "polled")
}

func measure(n, polled int, agent string, stdout io.Writer) error {
	root, err := os.MkdirTemp("/dev/shm", "bench-wait")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if agent, err = commands.Given(context.Background(), agent, root, commands.Agent); err != nil {
		return err
	}
	board := readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.Envoy}})
	s, err := status.Listen(status.Options{Board: board, Journal: status.NewJournal(status.JournalOptions{}), Ports: []uint16{0}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() { cancel(); <-served }()

	t := &figures.Table{}
	for _, w := range ways {
		t.Rows = append(t.Rows, &figures.Row{Title: w.name, What: "ms"})
	}
	for i := range max(n, polled) {
		for _, k := range rand.Perm(len(ways)) {
			w := ways[k]
			if w.polls && i >= polled || !w.polls && i >= n {
				continue
			}
			p := &place{dir: filepath.Join(root, fmt.Sprint(k, "-", i)), agent: agent, board: board, address: s.Addresses()[0].String()}
			took, err := p.once(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			t.Add(w.name, "ms", took.Seconds()*1e3, "")
		}
	}
	if err := t.Print(stdout, ""); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "Load average at the end:", figures.Load())
	return err
}

// once measures one wait.
func (p *place) once(w way) (time.Duration, error) {
	defer p.cleanUp()
	if err := p.make(); err != nil {
		return 0, err
	}
	release, released, err := w.begin(p)
	if err != nil {
		return 0, err
	}
	span := 50 * time.Millisecond
	if w.polls {
		span = time.Second // the random delay covers at least one polling period
	}
	time.Sleep(20*time.Millisecond + rand.N(span))
	began := time.Now()
	if err := release(); err != nil {
		return 0, err
	}
	err = released()
	return time.Since(began), err
}
