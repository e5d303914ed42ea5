// Command model measures the model of a pod on this machine: how many states a
// second the verifier looks at, and how long the simulator needs for a large pod.
// No figure makes it fail.
//
//	go run ./bench/model -n 10
//	go run ./bench/model -o json
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"outrider.dev/bench/internal/figures"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1
// something failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("model", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 10, "runs of each case")
	output := fs.String("o", "text", "how to print: text or json")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0 || *n < 1 || *output != "text" && *output != "json":
		fmt.Fprintln(stderr, "bench/model: error: usage: model [-n RUNS] [-o text|json]; at least one run")
		return 2
	}
	r, err := measure(*n)
	if err == nil {
		err = r.write(stdout, *output)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench/model: error: %v\n", err)
		return 1
	}
	return 0
}

// A report is all that was measured.
type report struct {
	Processors int    `json:"processors"`
	Go         string `json:"go"`
	LoadBegin  string `json:"load_begin"`
	LoadEnd    string `json:"load_end"`
	Rows       []row  `json:"rows"`
}

// A row is one case.
type row struct {
	Case   string  `json:"case"`
	N      int     `json:"n"`
	Unit   string  `json:"unit"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	Each   string  `json:"each"` // what one run is
}

// measure runs all cases n times, in turns, so that what else the machine does
// meets all of them.
func measure(n int) (report, error) {
	r := report{Processors: runtime.NumCPU(), Go: runtime.Version(), LoadBegin: figures.Load()}
	values := make([][]float64, len(cases))
	each := make([]string, len(cases))
	for range n {
		for i, c := range cases {
			runtime.GC() // of the case before
			began := time.Now()
			done, what, err := c.once()
			if err != nil {
				return r, fmt.Errorf("%s: %w", c.name, err)
			}
			values[i] = append(values[i], c.figure(done, time.Since(began)))
			each[i] = what
		}
	}
	for i, c := range cases {
		slices.Sort(values[i])
		r.Rows = append(r.Rows, row{Case: c.name, N: n, Unit: c.unit, Each: each[i],
			Min: round(values[i][0]), Median: round((values[i][(n-1)/2] + values[i][n/2]) / 2), Max: round(values[i][n-1])})
	}
	r.LoadEnd = figures.Load()
	return r, nil
}

// round keeps three digits after the point.
func round(f float64) float64 { return math.Round(f*1000) / 1000 }

func (r report) write(w io.Writer, output string) error {
	if output == "json" {
		return figures.WriteJSON(w, r)
	}
	fmt.Fprintf(w, "%d processors, %s\nload average (1, 5, 15 min): %s at the begin, %s at the end\n\n", r.Processors, r.Go, r.LoadBegin, r.LoadEnd)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tn\tmin\tmedian\tmax\tunit\tone run is")
	for _, l := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", l.Case, l.N, digits(l.Min), digits(l.Median), digits(l.Max), l.Unit, l.Each)
	}
	return t.Flush()
}

func digits(f float64) string {
	if f >= 1000 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.2f", f)
}
