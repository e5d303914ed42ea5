package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// serve runs a service.
func serve(o optionSet) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	emitStarted()
	if o.config != "" && !configure(o) {
		emit("gives-up")
		os.Exit(1)
	}
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = o.fresh
	var healthy atomic.Bool
	stop := listen(o, &healthy)
	time.AfterFunc(o.healthy, func() { emit("healthy"); healthy.Store(true) })
	if o.eat > 0 {
		time.AfterFunc(o.after, func() { eat(o.eat) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	called := make(chan counts, 1)
	go func() { called <- keepCalling(ctx, o) }()
	<-terminated
	emit("stopping")
	time.Sleep(o.stop)
	cancel()
	n := <-called
	if o.call != "" { // make a last call, as many programs do before they exit
		n.add(get(http.DefaultClient, o.call, nil))
	}
	stop()
	emit("done", "calls", n.calls, "failed", n.failed, "refused", n.refused, "first", n.first)
}

// emitStarted writes the line for the start, with the proxy's status. The line has the time before the request for
// the status.
func emitStarted() { emitOf(time.Now(), "started", "proxy", proxyReady()) }

// once returns a transport that keeps no connection: an idle one would show that the application lives.
func once() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

// proxyReady returns the current status of the proxy's readiness endpoint, or "none". Without a proxy the connection
// is refused at once, and a proxy that is not ready answers at once, so the long timeout matters only on a busy machine.
func proxyReady() string {
	client := http.Client{Timeout: 20 * time.Second, Transport: once()}
	resp, err := client.Get("http://127.0.0.1:15021/healthz/ready")
	if err != nil {
		return "none"
	}
	resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

// configure calls the configuration server once, without a retry, and reports whether it succeeded.
func configure(o optionSet) bool {
	client, header := &http.Client{Timeout: 30 * time.Second, Transport: once()}, http.Header{}
	if o.roots != "" {
		pem, err := os.ReadFile(o.roots)
		must(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	if o.token != "" {
		token, err := os.ReadFile(o.token)
		must(err)
		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	began := time.Now()
	r := get(client, o.config, header)
	emit("config", "result", r, "took", time.Since(began).Round(time.Microsecond))
	return r == "ok"
}

// said is the number of errors that were logged.
var said atomic.Int32

// get makes a request and returns "ok", "refused", the status, or the error as text.
func get(client *http.Client, url string, header http.Header) string {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	must(err)
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil && said.Add(1) <= 20 {
		log.Print(err) // as ordinary programs do, for the reader of the log
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err.Error()
	case resp.StatusCode != http.StatusOK:
		return fmt.Sprintf("%d %.200s", resp.StatusCode, body)
	}
	return "ok"
}

// counts are the results of many calls.
type counts struct {
	calls, failed, refused int
	first                  string // text of the first failure
}

func (n *counts) add(result string) {
	n.calls++
	if result == "ok" {
		return
	}
	n.failed++
	if result == "refused" {
		n.refused++
	}
	if n.first == "" {
		n.first = result
	}
	if n.failed <= 5 {
		emit("failure", "of", n.calls, "result", result)
	}
}

// keepCalling calls until ctx ends. It emits "called" when the first call has returned.
func keepCalling(ctx context.Context, o optionSet) (n counts) {
	for o.call != "" && ctx.Err() == nil {
		n.add(get(http.DefaultClient, o.call, nil))
		if n.calls == 1 {
			emit("called", "failed", n.failed)
		}
		select {
		case <-ctx.Done():
		case <-time.After(o.every):
		}
	}
	return n
}

// listen serves HTTP and, if the options have addresses for them, TCP and gRPC.
func listen(o optionSet, healthy *atomic.Bool) (stop func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/stop", func(_ http.ResponseWriter, r *http.Request) {
		emit("asked-to-stop", "user-agent", r.UserAgent(), "from-elsewhere", r.Header.Get("X-Forwarded-Client-Cert") != "")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s from %s\n", r.Header.Get("X-Forwarded-Client-Cert"), os.Getenv("HOSTNAME"))
	})
	server := &http.Server{Handler: mux}
	if o.listen != "none" {
		l, err := net.Listen("tcp", o.listen)
		must(err)
		go server.Serve(l)
	}
	if o.tcp != "" {
		l, err := net.Listen("tcp", o.tcp)
		must(err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	if o.grpc != "" {
		l, err := net.Listen("tcp", o.grpc)
		must(err)
		s, h := grpc.NewServer(), health.NewServer()
		h.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		healthpb.RegisterHealthServer(s, h)
		go s.Serve(l)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}
}

// eaten references the memory that eat allocates, so that it stays in use.
var eaten [][]byte

func eat(mib int) {
	emit("eats", "MiB", mib)
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		eaten = append(eaten, b)
	}
	emit("has-eaten")
}

// work is the program in a Job's container: it makes some calls and exits with the configured status, or 70 if a call
// failed.
func work(o optionSet) {
	emitStarted()
	if o.config != "" && !configure(o) {
		emit("gives-up")
		os.Exit(1)
	}
	var n counts
	for range o.calls {
		if o.call != "" {
			n.add(get(http.DefaultClient, o.call, nil))
		}
		time.Sleep(o.every)
	}
	emit("done", "calls", n.calls, "failed", n.failed, "refused", n.refused, "first", n.first)
	code := o.code
	if o.failures > 0 && runs(o.say) > o.failures {
		code = 0
	}
	if n.failed > 0 {
		code = 70
	}
	os.Exit(code)
}

// runs adds this run to the count in a file, and returns the number of runs so far, including this one.
func runs(file string) int {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	defer f.Close()
	_, err = f.WriteString(".")
	must(err)
	info, err := f.Stat()
	must(err)
	return int(info.Size())
}
