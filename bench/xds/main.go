// Command xds measures the control plane with many proxies: a real outriderd in a process
// of its own, and simulated proxies in this one. Each of these has a certificate, a TCP
// connection with mutual TLS over loopback and a delta stream of its own, subscribes as
// Envoy does, and accepts each message without decoding the resources.
//
// It measures how long it takes until all have their first configuration when they
// connect at once, what an idle proxy costs, and how long one endpoint's
// change takes from the folder to the proxies that use it. As a baseline it does the same
// with --push=full on a smaller mesh. No time makes it fail.
//
//	go run ./bench/xds
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/build/commands"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	b := &bench{table: &figures.Table{}}
	fs := flag.NewFlagSet("xds", flag.ContinueOnError)
	fs.SetOutput(stderr)
	sizes := fs.String("proxies", "500,2000", "numbers of proxies")
	services := fs.Int("services", 10000, "services of the mesh")
	full := fs.String("full", "500,1000", "proxies and services of the baseline; empty: none")
	fs.IntVar(&b.storms, "storms", 3, "how often all connect at once")
	fs.IntVar(&b.changes, "changes", 10, "changes of each kind")
	fs.DurationVar(&b.idle, "idle", 30*time.Second, "how long to measure idle proxies; outriderd pings them every 30s")
	fs.StringVar(&b.outriderd, "outriderd", "", "binary to measure (default: built from here)")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	settings, err := settings(*sizes, *services, *full)
	if err == nil && (b.storms < 1 || b.changes < 1) {
		err = errors.New("-storms, -changes: must be 1 or more")
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench/xds: error: %v\n", err)
		return 2
	}
	if err := b.all(settings, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench/xds: error: %v\n", err)
		return 1
	}
	return 0
}

func (b *bench) all(settings []setting, stdout, stderr io.Writer) error {
	if err := files(); err != nil {
		return err
	}
	if b.outriderd == "" {
		dir, err := os.MkdirTemp("", "bench-xds")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b.outriderd = filepath.Join(dir, commands.ControlPlane)
		if err := commands.Build(context.Background(), dir, commands.ControlPlane); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "control plane with many proxies; load average at the start: %s\n", figures.Load())
	for _, s := range settings {
		fmt.Fprintln(stderr, s)
		if err := b.measure(s); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "load average at the end: %s; one connection for each proxy, both ends on this machine\n\n", figures.Load())
	print(stdout, b.table)
	return nil
}

// files raises the bound on open files: a connection takes one at each end, and a child
// inherits the bound.
func files() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// settings puts the baseline first, followed by the same without full push.
func settings(sizes string, services int, full string) ([]setting, error) {
	var out []setting
	if full != "" {
		pair, err := numbers(full)
		if err != nil || len(pair) != 2 {
			return nil, fmt.Errorf("-full: %q: must be a number of proxies and one of services, for example 500,1000", full)
		}
		out = append(out, setting{pair[0], pair[1], true}, setting{pair[0], pair[1], false})
	}
	proxies, err := numbers(sizes)
	if err != nil {
		return nil, fmt.Errorf("-proxies: %w", err)
	}
	for _, n := range proxies {
		out = append(out, setting{n, services, false})
	}
	for _, s := range out {
		if s.proxies < fewUsers || s.proxies > 20000 || s.services < 2*uses || s.services > 50000 {
			return nil, fmt.Errorf("%s: must be %d to 20000 proxies and %d to 50000 services", s, fewUsers, 2*uses)
		}
	}
	return out, nil
}

func numbers(list string) (out []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		out = append(out, n)
	}
	return out, nil
}
