// Command capture measures what "outrider-agent capture" costs and what parking
// does to a connection, on this machine.
//
// Each measured command runs in a network namespace of its own, with a pod's
// interfaces, and its baseline runs in the same rounds; the order of a round is
// drawn. The namespaces have no names: they end with this program, also when it is
// killed. No time makes it fail. Run it as root:
//
//	go run ./bench/capture -n 25
//	go run ./bench/capture -agent ./outrider-agent -o json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/build/commands"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are the command line.
type options struct {
	n      int    // runs of each case
	agent  string // the binary to measure; "" is to build one
	output string
}

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("capture", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.n, "n", 25, "runs of each case")
	fs.StringVar(&o.agent, "agent", "", "outrider-agent to measure (default: built from ./cmd/outrider-agent)")
	fs.StringVar(&o.output, "o", "text", "how to print: text or json")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := o.check(fs.Args()); err != nil {
		fmt.Fprintf(stderr, "bench/capture: error: %v\n", err)
		return 2
	}
	// Ctrl-C ends the commands that run; what they changed ends with their namespaces.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	r, err := measure(ctx, o, stderr)
	if r != nil {
		err = errors.Join(r.write(stdout, o.output), err)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench/capture: error: %v\n", err)
		return 1
	}
	return 0
}

func (o options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag", rest[0])
	case o.n < 1:
		return fmt.Errorf("-n=%d: at least 1", o.n)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("-o=%q: one of text, json", o.output)
	case os.Geteuid() != 0:
		return errors.New("needs root: it makes network namespaces and writes packet filter rules in them")
	}
	return nil
}

// measure takes all figures. The report is nil if there is nothing worth printing;
// if there is an error too, the cases that failed are missing from it.
func measure(ctx context.Context, o options, progress io.Writer) (*report, error) {
	dir, err := os.MkdirTemp("", "outrider-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.agent == "" {
		fmt.Fprintln(progress, "building outrider-agent")
		o.agent = filepath.Join(dir, commands.Agent)
		if err := commands.Build(ctx, dir, commands.Agent); err != nil {
			return nil, err
		}
	}
	if o.agent, err = filepath.Abs(o.agent); err != nil {
		return nil, err
	}
	r := &report{}
	if r.Machine, err = describe(o.agent); err != nil {
		return nil, err
	}
	cases, notes, err := cases(ctx, o.agent, dir)
	if err != nil {
		return nil, err
	}
	r.Notes = notes
	var failed error
	fmt.Fprintf(progress, "commands: %d rounds of %d cases\n", o.n, len(cases))
	r.Commands, failed = measureCommands(ctx, cases, o.n)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	fmt.Fprintln(progress, "parking: delays and limits")
	if err := measureParking(ctx, o, r); err != nil {
		failed = errors.Join(failed, err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.Machine.LoadEnd = figures.Load()
	return r, failed
}
