// Command diagnose measures the page of a fleet: it makes reports of a thousand pods, writes the page
// and the table of them, and prints how long that took and how large they are. No figure makes it fail.
//
//	go run ./bench/diagnose -pods 1000
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/internal/doctor/diagnose/page"
)

func main() {
	pods := flag.Int("pods", 1000, "how many")
	runs := flag.Int("runs", 5, "times that each is written")
	figures.Main(func() error { return measure(*pods, *runs, os.Stdout) }, "pods", "runs")
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
