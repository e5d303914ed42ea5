// Command wait measures how long after the proxy is ready whoever waits for it goes on,
// on this machine, and what a wait costs when the proxy is ready already.
//
// A status server of this process stands for the agent. In each round every kind of waiter
// waits once, in an order that is drawn, and is released at a moment that is drawn too; so
// the waiter that polls, as elsewhere, is measured on the same machine in the same minute.
// No time makes it fail.
//
//	go run ./bench/wait -n 200
//	go run ./bench/wait -agent ./outrider-agent -o json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/internal/agent/readiness"
	"outrider.dev/internal/agent/status"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are the command line.
type options struct {
	n, polls, starts int
	agent            string
	output           string
}

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("wait", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.n, "n", 200, "releases of each kind of waiter")
	fs.IntVar(&o.polls, "polls", 20, "releases of the waiter that polls")
	fs.IntVar(&o.starts, "starts", 50, "waits for a proxy that is ready already")
	fs.StringVar(&o.agent, "agent", "", "the binary to measure; default: build one")
	fs.StringVar(&o.output, "o", "text", "text or json")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if o.n < 1 || o.polls < 0 || o.starts < 1 || o.output != "text" && o.output != "json" || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "wait: error: want -n 1 or more, -polls 0 or more, -starts 1 or more, -o text or json, and nothing else")
		return 2
	}
	rows, err := measure(context.Background(), o)
	if err == nil && o.output == "json" {
		err = json.NewEncoder(stdout).Encode(rows)
	} else if err == nil {
		err = print(stdout, rows)
	}
	if err != nil {
		fmt.Fprintln(stderr, "wait: error:", err)
		return 1
	}
	return 0
}

// A bench is the server and the binary that are measured.
type bench struct {
	board *readiness.Board
	addr  string
	agent string
}

func measure(ctx context.Context, o options) ([]row, error) {
	dir, err := os.MkdirTemp("", "bench-wait")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.agent == "" {
		o.agent = filepath.Join(dir, commands.Agent)
		if err := commands.Build(ctx, dir, commands.Agent); err != nil {
			return nil, err
		}
	}
	b := &bench{agent: o.agent, board: readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.Envoy}})}
	s, err := status.Listen(status.Options{Board: b.board, Journal: status.NewJournal(status.JournalOptions{}), Ports: []uint16{0}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() { cancel(); <-served }()
	b.addr = fmt.Sprintf("127.0.0.1:%d", s.Addresses()[0].(*net.TCPAddr).Port)
	return b.rows(o)
}

// A kind of waiter: start begins a wait and returns when it is held; what it returns then
// waits for the release.
type kind struct {
	name  string
	n     int
	start func() (released func() error, err error)
}

func (b *bench) rows(o options) ([]row, error) {
	kinds := []kind{
		{"ready -> a held request is answered", o.n, b.request},
		{"ready -> outrider-agent wait has ended", o.n, b.process},
		{"ready -> a poll every 500 ms sees it", o.polls, b.poll},
	}
	times := make([][]time.Duration, len(kinds))
	for round := range max(o.n, o.polls) {
		for _, i := range rand.Perm(len(kinds)) {
			if round >= kinds[i].n {
				continue
			}
			d, err := b.release(kinds[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			times[i] = append(times[i], d)
		}
	}
	var out []row
	for i, k := range kinds {
		if len(times[i]) > 0 {
			out = append(out, rowOf(k.name, times[i]))
		}
	}
	b.board.Set(readiness.Envoy, true, "")
	whole := map[string][]time.Duration{}
	commands := []struct {
		name string
		args []string
	}{
		{"ready already: outrider-agent wait, whole run", []string{b.agent, "wait", "--url=" + b.url()}},
		{"beside: outrider-agent version, whole run", []string{b.agent, "version"}},
	}
	for range o.starts {
		for _, i := range rand.Perm(len(commands)) {
			c := commands[i]
			began := time.Now()
			if err := exec.Command(c.args[0], c.args[1:]...).Run(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			whole[c.name] = append(whole[c.name], time.Since(began))
		}
	}
	for _, c := range commands {
		out = append(out, rowOf(c.name, whole[c.name]))
	}
	return out, nil
}

func (b *bench) url() string { return "http://" + b.addr + "/healthz/ready" }

// release measures one wait.
func (b *bench) release(k kind) (time.Duration, error) {
	b.board.Set(readiness.Envoy, false, "the bench waits")
	released, err := k.start()
	if err != nil {
		return 0, err
	}
	time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
	ready := time.Now()
	b.board.Set(readiness.Envoy, true, "")
	if err := released(); err != nil {
		return 0, err
	}
	return time.Since(ready), nil
}

// held returns when the server holds a request.
func (b *bench) held() error {
	for end := time.Now().Add(10 * time.Second); b.board.Waiting() == 0; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			return errors.New("no request waits")
		}
	}
	return nil
}

// request is a held request, whose first bytes are what it waits for.
func (b *bench) request() (func() error, error) {
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "GET /healthz/ready?wait=1m HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	return func() error {
		defer c.Close()
		first := make([]byte, 12)
		if _, err := io.ReadFull(c, first); err != nil {
			return err
		}
		if !strings.HasSuffix(string(first), " 200") {
			return fmt.Errorf("answer %q", first)
		}
		return nil
	}, b.held()
}

// process is the command, which a container's hook runs.
func (b *bench) process() (func() error, error) {
	cmd := exec.Command(b.agent, "wait", "--url="+b.url())
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Wait, b.held()
}

// poll asks every 500 ms, as pilot-agent wait does by default. It begins at a moment of
// its period that is drawn.
func (b *bench) poll() (func() error, error) {
	const period = 500 * time.Millisecond
	return func() error {
		time.Sleep(time.Duration(rand.Int64N(int64(period))))
		for {
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				return err
			}
			fmt.Fprintf(c, "GET /healthz/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			first := make([]byte, 12)
			_, err = io.ReadFull(c, first)
			c.Close()
			if err != nil || strings.HasSuffix(string(first), " 200") {
				return err
			}
			time.Sleep(period)
		}
	}, nil
}
