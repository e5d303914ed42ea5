// Command tiers runs the project's tests and checks by tier. A tier is a list of steps:
//
//	go run ./build/tiers quick              # unit tests; unchanged packages are not run again
//	go run ./build/tiers test               # also the suites with real programs
//	go run ./build/tiers -part 2/4 nightly  # one of four parts of everything
//	go run ./build/tiers -list nightly      # the steps, without running them
//
// Every step runs, even if an earlier one has failed. At the end it prints the reasons for skipped tests, a
// table of the steps, and a line that says how complete the result is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `usage: go run ./build/tiers [-list] [-part K/N] TIER

The tiers are quick, test, check, e2e and nightly. In the root of the module.

`

// run runs a tier and returns the exit status: 0 if it is green, 1 if a step failed, 2 for wrong arguments.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tiers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {}
	part := flags.String("part", "1/1", "the `K/N`th part alone: parts take about the same time")
	list := flags.Bool("list", false, "print the steps and run none")
	err := flags.Parse(args)
	if err == nil && flags.NArg() != 1 {
		err = fmt.Errorf("%d tiers: want one, after the flags", flags.NArg())
		fmt.Fprintln(stderr, "tiers: error:", err)
	}
	if err != nil {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	name := flags.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Get SIGTERM when the parent ends: "go run" does not pass signals on, and may be killed.
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	all, err := stepsOf(ctx, name)
	steps := all
	if err == nil {
		steps, err = selected(all, *part)
	}
	if err != nil {
		fmt.Fprintln(stderr, "tiers: error:", err)
		return 2
	}
	if *list {
		for _, s := range steps {
			minutes := ""
			if s.minutes > 0 {
				minutes = fmt.Sprintf("%d min", s.minutes)
			}
			fmt.Fprintf(stdout, "%-26s %7s  %s\n", s.name, minutes, s.line())
		}
		return 0
	}
	title := "make " + name
	if *part != "1/1" {
		title += " PART=" + *part
	}
	if n := len(steps); n < len(all) {
		title += fmt.Sprintf(" (%d of %d steps)", n, len(all))
	}
	r := &report{title: title, out: stdout}
	r.run(ctx, steps)
	return r.close()
}

// selected returns the steps of one part, such as "2/4".
func selected(all []step, part string) ([]step, error) {
	first, of, ok := strings.Cut(part, "/")
	k, errK := strconv.Atoi(first)
	n, errN := strconv.Atoi(of)
	if !ok || errK != nil || errN != nil || k < 1 || n < k || n > len(all) {
		return nil, fmt.Errorf("-part %q: want K/N with 1 <= K <= N <= %d, such as 2/4", part, len(all))
	}
	steps := parts(all, n)[k-1]
	// A step can run together with the previous step of the tier. If another part has that previous step, it
	// must not: it would run together with a different step.
	for i := range steps {
		at := slices.IndexFunc(all, func(s step) bool { return s.name == steps[i].name })
		steps[i].beside = steps[i].beside && i > 0 && steps[i-1].name == all[at-1].name
	}
	return steps, nil
}

// parts distributes steps to n parts that take about the same time: it begins with the longest step, and gives
// each to the part that is shortest so far. The steps of a part have the order of the tier.
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
		for i, s := range steps {
			if s.soft && !slices.Contains(taken[p], i) { // each part gets all soft steps, because other steps need them
				taken[p] = append(taken[p], i)
			}
		}
		slices.Sort(taken[p])
		for _, i := range taken[p] {
			out[p] = append(out[p], steps[i])
		}
	}
	return out
}
