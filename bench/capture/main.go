// Command capture compares "outrider-agent capture" with programs that load hand-written rules with the same
// effect, for port and range lists of several lengths. It measures wall time, processor time, and the number of
// rules and set elements in the kernel. It also measures captured and parked connections. In each round every
// case runs once, in random order, each in a new network namespace. The command never fails because of a
// measured time.
//
//	go run ./bench/capture -n 25
//	go run ./bench/capture -entries 0,50 -agent ./outrider-agent
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/build/commands"
	"outrider.dev/internal/core/capture"
)

func main() {
	n := flag.Int("n", 25, "runs of each way")
	sizes := flag.String("entries", fmt.Sprintf("0,20,%d", capture.MaxPorts), "numbers of ports and of ranges in the lists (-o and -x)")
	agent := flag.String("agent", "", "outrider-agent to measure (default: built from ./cmd/outrider-agent)")
	figures.Main(func() error {
		entries, err := figures.Numbers("entries", *sizes, 0, capture.MaxPorts)
		if err != nil {
			return err
		}
		return measure(*n, entries, *agent, os.Stdout)
	}, "n")
}

func measure(n int, entries []int, agent string, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-capture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if agent, err = commands.Given(context.Background(), agent, dir, commands.Agent); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "Load average at the begin:", figures.Load())
	ipset := exec.Command("ipset", "list", "-n").Run()
	if ipset != nil {
		fmt.Fprintln(stdout, "ipset cannot be used: its sets are not counted, and rules by hand have multiport instead:", ipset)
	}
	ways, err := waysOf(dir, agent, ipset == nil, entries)
	if err != nil {
		return err
	}
	for i := range n + 1 { // the first run warms up, and finds the cases that cannot run
		for _, k := range rand.Perm(len(ways)) {
			if err := ways[k].run(i == 0); err != nil {
				return err
			}
		}
	}
	if err := table(stdout, n, ways); err != nil {
		return err
	}
	t, err := connections(ways, agent, n)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	if err := t.Print(stdout, "of the first list"); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "Load average at the end:", figures.Load())
	return err
}

// note is the text below the table.
const note = `
Each of %d runs is in a fresh network namespace with IPv4 and IPv6. Times are milliseconds from fork to exit; CPU
includes the processes that a command starts. Rules and elements of sets are what the kernel lists afterwards.
"rules alone" is the shortest file that captures and parks: no counters, nothing replaced, without the address ::6 on lo
and the routes of TPROXY. "same result" has these too; it has no comments, and no rules of a proof. "dry run" is the
file that "capture --dry-run" prints, with both. Ratios are of medians: /alone and /same over rules by hand of the same
backend, /nft over "nft -f, rules alone" of REDIRECT with the same lists.
"nft -f" of a file that replaces ("delete table") takes some 10 ms longer, without CPU, also if there was no table: the close
of its socket waits until the kernel has freed what was deleted (RCU). Comments and counters take less than can be
measured. capture looks first, and deletes only what is there.
`

// table prints one row for each benchmark case.
func table(stdout io.Writer, n int, ways []*way) error {
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, w := range ways {
		first := i == 0 || ways[i-1].backend != w.backend
		if first {
			fmt.Fprintf(out, "\n%s\nentries\tway\trules\telements\twall min\tmedian\tmax\tCPU min\tmedian\tmax\t", w.backend)
			for _, what := range []string{"wall", "CPU"} {
				for _, b := range w.bases {
					fmt.Fprintf(out, "%s/%s\t", what, b.name)
				}
			}
			fmt.Fprintln(out)
		}
		if first || ways[i-1].entries != w.entries {
			fmt.Fprint(out, w.entries)
		}
		fmt.Fprintf(out, "\t%s\t", w.name)
		if w.cannot != nil {
			fmt.Fprintf(out, "  cannot run: %s\n", strings.SplitN(w.cannot.Error(), "\n", 2)[0])
			continue
		}
		fmt.Fprintf(out, "%d\t%d\t", w.rules, w.elements)
		for i := range w.times {
			middle := w.times[i].Median() // Median also sorts the values
			values := w.times[i].Values
			fmt.Fprintf(out, "%.1f\t%.1f\t%.1f\t", values[0], middle, values[len(values)-1])
		}
		for i := range w.times {
			for _, b := range w.bases {
				if b.cannot == nil {
					fmt.Fprintf(out, "%.2f", w.times[i].Median()/b.times[i].Median())
				}
				fmt.Fprint(out, "\t")
			}
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, note, n)
	return err
}
