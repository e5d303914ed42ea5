// Command xds measures the control plane with many proxies: a real outriderd in a process of its own,
// and simulated proxies in this process (package fleet).
//
// It measures how long it takes until all proxies have their first configuration when they connect at
// once, what an idle proxy costs, and how long one endpoint's change takes from the folder to the
// proxies that use it. The command never fails because of a measured time.
//
//	go run ./bench/xds
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/build/commands"
)

func main() {
	b := &bench{table: &figures.Table{}}
	divide := flag.Int("divide", 1, "divides the numbers of proxies and services, for a quick run; up to 10")
	flag.IntVar(&b.storms, "storms", 3, "how often all connect at once")
	flag.IntVar(&b.changes, "changes", 10, "changes of each kind")
	flag.DurationVar(&b.idle, "idle", 30*time.Second, "how long to measure idle proxies; outriderd pings them every 30s")
	flag.StringVar(&b.outriderd, "outriderd", "", "binary to measure (default: built from here)")
	figures.Main(func() error { return b.all(settings(min(*divide, 10)), os.Stdout) }, "storms", "changes", "divide")
}

func (b *bench) all(settings []setting, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-xds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if b.outriderd, err = commands.Given(context.Background(), b.outriderd, dir, commands.ControlPlane); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "control plane with many proxies; load average at the start: %s\n", figures.Load())
	for _, s := range settings {
		fmt.Fprintln(os.Stderr, s)
		if err := b.measure(s); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "load average at the end: %s; one connection for each proxy, both ends on this machine\n\n", figures.Load())
	print(stdout, b.table)
	return nil
}

// settings are a small mesh, one with more services, and one with more services and proxies.
func settings(divide int) []setting {
	out := []setting{{500, 1000}, {500, 10000}, {2000, 10000}}
	for i := range out {
		out[i].proxies /= divide
		out[i].services /= divide
	}
	return out
}

// print writes the table.
func print(w io.Writer, t *figures.Table) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\twhat\tn\tmin\tmedian\tmax")
	last := ""
	for _, r := range t.Rows {
		title := r.Title
		if title == last {
			title = ""
		}
		last = r.Title
		fmt.Fprintf(out, "%s\t%s\t%d\t%.4g\t%.4g\t%.4g\n", title, r.What, len(r.Values), r.Values[0], r.Median(), r.Values[len(r.Values)-1])
	}
	out.Flush()
}
