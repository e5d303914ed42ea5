// Command agent measures a proxy's start in a pod's network namespace, with a control plane
// of a few or of many services: from the agent's exec until its readiness port answers 200.
// The baseline, in the same run, is Envoy alone with a static listener. It measures
// connections that are older than Envoy against as many to an Envoy that is ready, and new
// connections while Envoy takes over against those when nothing changes. No time makes it
// fail.
//
//	go run ./bench/agent -n 12
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/bench/internal/tb"
	"outrider.dev/test/agent/harness"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 12, "starts of each case on demand")
	full := fs.Int("full", 10, "starts of each case with full push")
	sizes := fs.String("services", "10,1000,10000", "sizes of the mesh")
	idle := fs.Duration("idle", 20*time.Second, "how long each measurement of an idle proxy takes; 0 skips it")
	looks := fs.Int("looks", 4, "measurements of an idle proxy")
	earlies := fs.String("early", "20,200,2000", "numbers of connections made before Envoy is ready")
	waves := fs.Int("waves", 10, "repetitions of -early, half of them from 1,000 connections on; 0 skips -early and -rate")
	rate := fs.Float64("rate", 5000, "connections a second begun during a hand-over")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || *n < 1 || *full < 0 || *looks < 1 || *waves < 0 || *rate < 1:
		return 2
	}
	services, err := figures.Numbers(*sizes, 0, 50_000)
	if err != nil {
		fmt.Fprintf(stderr, "bench/agent: error: -services: %v\n", err)
		return 2
	}
	connections, err := figures.Numbers(*earlies, 1, 3000)
	if err != nil {
		fmt.Fprintf(stderr, "bench/agent: error: -early: %v\n", err)
		return 2
	}
	defer harness.Clean()
	t := &figures.Table{}
	for i, size := range services {
		err := inWorld(func(w *harness.World) {
			if info, err := os.Stat(w.Binaries.Agent); i == 0 && err == nil {
				fmt.Fprintf(stdout, "agent, stripped: %.2f MB. Load average at the begin: %s\n", float64(info.Size())/1e6, figures.Load())
			}
			measure(t, w, size, *n, *full)
			if i == 0 && *idle > 0 {
				rest(t, w, *looks, *idle)
			}
		})
		if err != nil {
			fmt.Fprintf(stderr, "bench/agent: error: %v\n", err)
			return 1
		}
	}
	if *waves > 0 {
		if err := inWorld(func(w *harness.World) { standby(t, newCaller(w), connections, *waves, *rate) }); err != nil {
			fmt.Fprintf(stderr, "bench/agent: error: %v\n", err)
			return 1
		}
	}
	fmt.Fprintf(stdout, "Load average at the end: %s. Times in milliseconds since the exec; memory is Rss at ready.\n\n", figures.Load())
	t.Print(stdout, "of Envoy alone")
	return 0
}

// inWorld calls f with a new world, and cleans it up.
func inWorld(f func(*harness.World)) error {
	return tb.Run(func(t testing.TB) { f(harness.New(t)) })
}

// standby measures the hand-over from the agent to Envoy.
func standby(t *figures.Table, c *caller, sizes []int, n int, rate float64) {
	for i := range n {
		for _, size := range sizes {
			if size < 1000 || i%2 == 0 {
				early(t, c, size)
			}
		}
		if i%2 == 0 {
			handOver(t, c, rate, 2*time.Second)
		}
	}
}
