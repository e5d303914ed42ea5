// Command agent measures the start of a proxy in a pod's network namespace, in meshes of several sizes: the time
// from the agent's exec until its readiness port answers 200. The baseline, in the same run, is Envoy alone with
// a static listener. The command also compares connections that are made before Envoy is ready with connections
// to a ready Envoy, and new connections during the hand-over from the agent to Envoy with those afterwards. It
// never fails because of a measured time.
//
//	go run ./bench/agent -n 12
package main

import (
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

func main() {
	var o options
	flag.IntVar(&o.n, "n", 12, "starts of each case")
	sizes := flag.String("services", "10,1000,10000", "sizes of the mesh")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long each measurement of an idle proxy takes; 0 skips it")
	flag.IntVar(&o.looks, "looks", 4, "measurements of an idle proxy")
	earlies := flag.String("early", "20,200,2000", "numbers of connections made before Envoy is ready")
	flag.IntVar(&o.waves, "waves", 10, "repetitions of -early, half of them from 1,000 connections on; 0 skips -early and -rate")
	flag.Float64Var(&o.rate, "rate", 5000, "connections a second begun during a hand-over")
	figures.Main(func() (err error) {
		if o.services, err = figures.Numbers("services", *sizes, 0, 50_000); err != nil {
			return err
		}
		if o.early, err = figures.Numbers("early", *earlies, 1, 3000); err != nil {
			return err
		}
		return o.measure(os.Stdout)
	}, "n", "looks")
}

// options are the values of the flags.
type options struct {
	n, looks, waves int
	services, early []int
	idle            time.Duration
	rate            float64
}

func (o options) measure(stdout io.Writer) error {
	defer harness.Clean()
	t := &figures.Table{}
	for i, size := range o.services {
		err := inWorld(func(w *harness.World) {
			if info, err := os.Stat(w.Binaries.Agent); i == 0 && err == nil {
				fmt.Fprintf(stdout, "agent, stripped: %.2f MB. Load average at the begin: %s\n", float64(info.Size())/1e6, figures.Load())
			}
			measure(t, w, size, o.n)
			if i == 0 && o.idle > 0 {
				rest(t, w, o.looks, o.idle)
			}
		})
		if err != nil {
			return err
		}
	}
	if o.waves > 0 {
		if err := inWorld(func(w *harness.World) { standby(t, newCaller(w), o.early, o.waves, o.rate) }); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "Load average at the end: %s. Times in milliseconds since the exec; memory is Rss at ready.\n\n", figures.Load())
	return t.Print(stdout, "of Envoy alone")
}

// inWorld calls f with a new world, cleans it up, and returns the errors that f reported.
func inWorld(f func(*harness.World)) error {
	return tb.Run(func(t testing.TB) { f(harness.New(t)) })
}

// standby measures early connections and the hand-over from the agent to Envoy, n times.
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
