// Command app is the program in the containers of the suite's pods: an application that does not
// wait for its mesh, as many real ones. It prints a line to standard output for each event, which
// package world reads: "e2e NANOSECONDS WORD [NAME=VALUE...]".
//
//	app serve [flags]    calls its configuration server once, and exits if the call fails; then serves
//	                     and keeps calling, until SIGTERM and a while longer
//	app work [flags]     makes some calls and exits
//	app sleep DURATION   for hooks
//	app proxy [flags]    another mesh's proxy: a TCP relay without any part of Outrider
//	app wrapper [flags]  another mesh's agent: it runs an Envoy, and ends it as Istio's or Linkerd's proxy ends
//	app copy PATH        copies this program
//	app post URL         for hooks
//	app tier [flags]     a service that calls the next one for each call; SIGUSR1 ends it with
//	                     status 1, SIGUSR2 makes it use up memory
//	app load [flags]     calls at a fixed rate until SIGTERM, see package load
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: app serve|work|sleep|proxy|wrapper|copy|post|tier|load [flags]")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "serve":
		serve(options(os.Args[2:]))
	case "work":
		work(options(os.Args[2:]))
	case "sleep":
		d, err := time.ParseDuration(strings.Join(os.Args[2:], ""))
		must(err)
		time.Sleep(d)
	case "proxy":
		relay(options(os.Args[2:]))
	case "wrapper":
		wrap(options(os.Args[2:]))
	case "copy":
		copySelf(strings.Join(os.Args[2:], ""))
	case "post":
		resp, err := http.Post(strings.Join(os.Args[2:], ""), "", nil)
		must(err)
		resp.Body.Close()
	case "tier":
		tier(options(os.Args[2:]))
	case "load":
		generate(options(os.Args[2:]))
	default:
		must(fmt.Errorf("no role %q", os.Args[1]))
	}
}

// An optionSet holds the options of all roles; each role reads its own.
type optionSet struct {
	config   string        // URL, called once at the start
	token    string        // file with a bearer token for the server of config
	roots    string        // file with the trusted roots for the server of config
	call     string        // URL, called repeatedly
	every    time.Duration // time between two calls; for a proxy: time from listening until it uses up memory
	calls    int           // number of calls that "app work" makes
	listen   string
	tcp      string
	grpc     string
	healthy  time.Duration // delay before the container is healthy
	say      string        // file in which the runs of "app work" are counted
	stop     time.Duration // time between SIGTERM and the exit
	code     int           // exit code of "app work"
	failures int           // number of runs of "app work" that exit with code before it succeeds; 0: all runs
	eat      int           // MiB of memory to use after the first call
	after    time.Duration // delay before memory is used up; for a proxy: delay before it listens
	name     string        // name of a tier
	rude     bool          // a tier closes all connections at SIGTERM
	timeout  time.Duration // time limit of a tier's outbound call
	rate     int           // calls that each client of "app load" makes in a second
	want     string        // answer that "app load" expects
	fresh    bool          // each call has a connection of its own
	like     string        // mesh that a wrapper is like: istio or linkerd
	envoy    string        // path of the wrapper's Envoy
	onZero   bool          // the wrapper ends when Envoy has no connection (EXIT_ON_ZERO_ACTIVE_CONNECTIONS)
}

func options(args []string) optionSet {
	var o optionSet
	f := flag.NewFlagSet("app", flag.ExitOnError)
	f.StringVar(&o.config, "config", "", "URL that is called first")
	f.StringVar(&o.token, "token", "", "file with a bearer token for it")
	f.StringVar(&o.roots, "roots", "", "file with the roots of its certificate")
	f.StringVar(&o.call, "call", "", "URL that is called again and again")
	f.DurationVar(&o.every, "every", 20*time.Millisecond, "between two calls; of a proxy: from when it listens until it eats")
	f.IntVar(&o.calls, "calls", 1, "how many calls a work has")
	f.StringVar(&o.listen, "listen", ":8080", "address for HTTP; none: a worker, without a listener")
	f.StringVar(&o.tcp, "tcp", "", "address for TCP probes")
	f.StringVar(&o.grpc, "grpc", "", "address for gRPC health checks")
	f.DurationVar(&o.healthy, "healthy", 0, "healthy that long after the start")
	f.DurationVar(&o.stop, "stop", 0, "goes on that long after SIGTERM")
	f.IntVar(&o.code, "code", 0, "exit status of a work")
	f.IntVar(&o.failures, "failures", 0, "runs that end with --code; the next ends with 0")
	f.StringVar(&o.say, "say", "", "file that counts the runs")
	f.IntVar(&o.eat, "eat", 0, "MiB of memory to use up")
	f.DurationVar(&o.after, "after", 0, "before that; of a proxy: before it listens")
	f.StringVar(&o.name, "name", "", "of a tier")
	f.BoolVar(&o.rude, "rude", false, "closes all connections at SIGTERM")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "of a tier's --call")
	f.IntVar(&o.rate, "rate", 30, "calls a second of each client of a load")
	f.StringVar(&o.want, "want", "", "the answer that a load wants")
	f.BoolVar(&o.fresh, "fresh", false, "a connection for each call")
	f.StringVar(&o.like, "like", "istio", "the mesh that a wrapper is like")
	f.StringVar(&o.envoy, "envoy", "/usr/local/bin/envoy", "the wrapper's Envoy")
	f.BoolVar(&o.onZero, "on-zero", false, "the wrapper ends when Envoy has no connection")
	must(f.Parse(args))
	return o
}

// emit writes the line for an event that happens now.
func emit(word string, pairs ...any) { emitOf(time.Now(), word, pairs...) }

// emitOf writes the line for an event that happened earlier.
func emitOf(at time.Time, word string, pairs ...any) {
	var b strings.Builder
	fmt.Fprintf(&b, "e2e %d %s", at.UnixNano(), word)
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, " %v=%s", pairs[i], strings.Join(strings.Fields(fmt.Sprint(pairs[i+1])), "_"))
	}
	fmt.Println(b.String())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(2)
	}
}
