// Command tiers runs the project's tests and checks by tier, each a list of steps:
//
//	go run ./build/tiers quick              # unit tests; what has not changed is not run again
//	go run ./build/tiers test               # and the suites on real parts
//	go run ./build/tiers -part 2/4 nightly  # one of four parts of everything
//	go run ./build/tiers -list nightly      # the steps, without running them
//
// Every step runs, also when one before it has failed. At the end stand the reasons for which tests
// were skipped, a table of the steps, and a line that says what the result is worth.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `usage: go run ./build/tiers [-list] [-part K/N] [-only STEP,...] TIER

The tiers are quick, test, check, e2e and nightly. In the root of the module.

`

// run is main without the process. It returns the exit status: 0 green, 1 a step failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tiers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	part := flags.String("part", "1/1", "the `K/N`th part alone: parts take about the same time")
	only := flags.String("only", "", "these `steps` alone, by their names, with commas between them")
	list := flags.Bool("list", false, "print the steps and run none")
	if flags.Parse(args) != nil || flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	name := flags.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	steps, err := stepsOf(ctx, name)
	if err == nil {
		steps, err = selected(steps, *part, *only)
	}
	if err != nil {
		fmt.Fprintln(stderr, "tiers: error:", err)
		return 2
	}
	if *list {
		for _, s := range steps {
			fmt.Fprintf(stdout, "%-26s %3d min  %s\n", s.name, s.minutes, s.line())
		}
		return 0
	}
	title := "make " + name
	if *part != "1/1" {
		title += " PART=" + *part
	}
	r := &report{title: title, out: stdout}
	r.run(ctx, steps)
	return r.close()
}

// selected returns the steps of a part, and of those the named ones.
func selected(steps []step, part, only string) ([]step, error) {
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || n < k {
		return nil, fmt.Errorf("-part %s: want K/N with 1 <= K <= N, such as 2/4", part)
	}
	steps = parts(steps, n)[k-1]
	if only == "" {
		return steps, nil
	}
	var out []step
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only %s: not a step of this tier; -list prints them", name)
		}
		out = append(out, steps[i])
	}
	return out, nil
}

// parts deals steps out so that the parts take about the same time: the longest first, each to
// the part that is shortest by then. Within a part the order is that of the tier.
func parts(steps []step, n int) [][]step {
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return steps[b].minutes - steps[a].minutes })
	minutes, taken := make([]int, n), make([][]int, n)
	for _, i := range order {
		shortest := 0
		for p := range n {
			if minutes[p] < minutes[shortest] {
				shortest = p
			}
		}
		minutes[shortest] += max(1, steps[i].minutes)
		taken[shortest] = append(taken[shortest], i)
	}
	out := make([][]step, n)
	for p := range n {
		slices.Sort(taken[p])
		for _, i := range taken[p] {
			out[p] = append(out[p], steps[i])
		}
	}
	return out
}
