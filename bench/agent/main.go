// Command agent measures a proxy's start in a pod's network namespace, with a control plane
// of a few or of many services: from the agent's exec until its readiness port says ready.
// Beside it, in the same run, stands Envoy alone with a static listener. No time makes it
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
	"strconv"
	"strings"
	"time"

	"outrider.dev/test/agent/harness"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 12, "starts of each case on demand")
	full := fs.Int("full", 4, "starts of each case in which the proxy is told everything")
	sizes := fs.String("services", "10,1000,10000", "sizes of the mesh")
	idle := fs.Duration("idle", 20*time.Second, "how long to look at an idle proxy, each of -looks times; 0 skips it")
	looks := fs.Int("looks", 4, "how often to look at an idle proxy")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || *n < 1 || *full < 0 || *looks < 1:
		return 2
	}
	var services []int
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || size > 50_000 {
			fmt.Fprintf(stderr, "bench/agent: error: -services: %q is no number of services\n", text)
			return 2
		}
		services = append(services, size)
	}
	defer harness.Clean()
	t := &table{out: stdout}
	for i, size := range services {
		err := inWorld(func(w *harness.World) {
			if i == 0 {
				t.head(w)
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
	t.print()
	return 0
}
