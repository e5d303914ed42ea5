// Command diagnose measures the page of a fleet: it makes reports of a thousand pods, writes the page
// and the table of them, and prints how long that took and how large they are. No figure makes it fail.
//
//	go run ./bench/diagnose -pods 1000
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"outrider.dev/internal/diagnose/page"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("diagnose", flag.ContinueOnError)
	fs.SetOutput(stderr)
	pods := fs.Int("pods", 1000, "how many")
	runs := fs.Int("runs", 5, "times that each is written")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case *pods < 1 || *runs < 1 || fs.NArg() > 0:
		fmt.Fprintln(stderr, "bench/diagnose: error: usage: diagnose [-pods N] [-runs N], with N of 1 or more")
		return 2
	}
	if err := measure(*pods, *runs, stdout); err != nil {
		fmt.Fprintf(stderr, "bench/diagnose: error: %v\n", err)
		return 1
	}
	return 0
}

func measure(pods, runs int, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%-6s %8s %10s %10s %12s\n", "format", "pods", "KB", "bytes/pod", "median time")
	reports := page.Made(pods)
	for _, format := range []string{"html", "text", "json"} {
		var out bytes.Buffer
		var took []time.Duration
		for range runs {
			out.Reset()
			began := time.Now()
			if err := page.Write(&out, reports, page.Options{Format: format, Fleet: true}); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		fmt.Fprintf(stdout, "%-6s %8d %10d %10d %12s\n", format, pods, out.Len()/1000, out.Len()/pods, took[len(took)/2].Round(100*time.Microsecond))
	}
	fmt.Fprintf(stdout, "\n%s, %d processors\n", runtime.Version(), runtime.NumCPU())
	return nil
}
