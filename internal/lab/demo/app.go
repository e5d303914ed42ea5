package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// These are the texts in the app's log that a listener looks for.
const (
	lineRefused = "Connection refused"
	lineReady   = "awesome-app is ready"
	lineServed  = "awesome-app served" // printed at its end, with the numbers of requests and failures
)

// An App is the application in the demo's pod, awesome-app. It fetches its configuration once when it starts, and
// exits if that fails. Then it serves, and makes one call for each request. On SIGTERM it serves for one more
// second, deregisters at the configuration server, and exits. It has no code that waits for a proxy.
type App struct {
	Config string // URL of the configuration server
	Listen string // address, for example ":8080"
	Calls  int    // a job makes that many calls and then exits; 0: serve until SIGTERM
	Out    io.Writer

	served, failed atomic.Int64
}

// Run runs the app until ctx ends, and returns its exit status.
func (a *App) Run(ctx context.Context) int {
	begin := time.Now()
	client := &http.Client{Timeout: 30 * time.Second}
	// The calls do not use ctx, because a graceful app finishes its calls after SIGTERM.
	if err := a.get(client, "/config"); err != nil {
		return a.trace("fetching the configuration", err)
	}
	if a.Calls > 0 {
		return a.work(client)
	}
	listener, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return a.trace("listening", err)
	}
	server := &http.Server{Handler: a.handler(client), ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	fmt.Fprintf(a.Out, "%s after %.2f s\n", lineReady, time.Since(begin).Seconds())
	<-ctx.Done()
	return a.stop(server, client)
}

// stop ends the app as a good web application does: it serves for another second, because callers still send
// requests, then finishes the requests in flight, and then deregisters.
func (a *App) stop(server *http.Server, client *http.Client) int {
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	shutdown := server.Shutdown(ctx)
	goodbye := a.get(client, "/deregister")
	if goodbye != nil {
		a.failed.Add(1)
	}
	fmt.Fprintf(a.Out, "%s %d, failed %d\n", lineServed, a.served.Load(), a.failed.Load())
	if err := errors.Join(shutdown, goodbye); err != nil {
		return a.trace("stopping", err)
	}
	return 0
}

func (a *App) work(client *http.Client) int {
	for range a.Calls {
		if err := a.get(client, "/price"); err != nil {
			return a.trace("working", err)
		}
		a.served.Add(1)
	}
	fmt.Fprintf(a.Out, "%s %d, failed 0\n", lineServed, a.served.Load())
	return 0
}

func (a *App) handler(client *http.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		a.served.Add(1)
		if err := a.get(client, "/price"); err != nil {
			a.failed.Add(1)
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "awesome")
	})
	return mux
}

func (a *App) get(client *http.Client, path string) error {
	response, err := client.Get(a.Config + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return nil
}

// trace prints an error as a Java application would, and returns the exit status.
func (a *App) trace(doing string, err error) int {
	what := err.Error()
	if errors.Is(err, syscall.ECONNREFUSED) {
		what = "java.net.ConnectException: " + lineRefused
	}
	fmt.Fprintf(a.Out, "Exception in thread \"main\" java.lang.IllegalStateException: %s\n", doing)
	fmt.Fprintf(a.Out, "Caused by: %s\n\tat com.example.awesome.ConfigClient.fetch(ConfigClient.java:42)\n\tat com.example.awesome.Main.main(Main.java:7)\n", what)
	return 1
}

// Centre returns the handler of the configuration server. It answers all of the app's requests.
func Centre() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/config", "/price", "/deregister"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "{\"path\": %q}\n", path)
		})
	}
	return mux
}
