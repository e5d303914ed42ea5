// Command webhook measures reviews of pods over HTTPS: how many one processor answers in a
// second, and how long each takes, compared with the same server without work. The server is
// a process of its own with GOMAXPROCS=1; the clients keep their connections, as an API server
// does. No figure makes it fail.
//
//	go run ./bench/webhook -seconds 5 -clients 16
//	go run ./bench/webhook -o json
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"outrider.dev/bench/internal/figures"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("webhook", flag.ContinueOnError)
	fs.SetOutput(stderr)
	seconds := fs.Int("seconds", 4, "how long each case is measured")
	clients := fs.Int("clients", 8, "connections, each with one review at a time")
	output := fs.String("o", "text", "how to print: text or json")
	profile := fs.String("profile", "", "folder for a processor profile of the server for each case")
	child := fs.Bool("serve", false, "be the server; for this command itself")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0 || *seconds < 1 || *clients < 1 || *output != "text" && *output != "json":
		fmt.Fprintln(stderr, "bench/webhook: error: usage: webhook [-seconds N] [-clients N] [-profile DIR] [-o text|json]")
		return 2
	}
	var err error
	if *child {
		err = serve(stdin, stdout)
	} else {
		var rows []row
		if rows, err = measureAll(time.Duration(*seconds)*time.Second, *clients, *profile); err == nil {
			err = write(stdout, *output, rows)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench/webhook: error: %v\n", err)
		return 1
	}
	return 0
}

// A row is what was measured of a case. Times are microseconds.
type row struct {
	Name      string  `json:"name"`
	N         int     `json:"n"`
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
	CPU       float64 `json:"cpu"`     // of the server, for one review
	PerCore   float64 `json:"perCore"` // reviews in a second of its processor time
}

func write(w io.Writer, output string, rows []row) error {
	if output == "json" {
		return figures.WriteJSON(w, rows)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "case\tn\treviews/s\tp50 µs\tp99 µs\tcpu µs\treviews/cpu s\t\n")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", r.Name, r.N, r.PerSecond, r.P50, r.P99, r.CPU, r.PerCore)
	}
	return t.Flush()
}
