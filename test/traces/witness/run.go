package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// run is the main process of the container.
func run(o map[string]string) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	os.Remove(healthFile())
	n := count("starts")
	writeLine("runs")
	for what, serve := range map[string]func(string){"http": serveHTTP, "tcp": serveTCP, "grpc": serveGRPC} {
		if port := o[what]; port != "" {
			go serve(":" + port)
		}
	}
	go live(o)
	code := "0"
	if c, ok := at(o["code"], n); ok {
		code = c
	}
	end := make(<-chan time.Time)
	if life, ok := at(o["life"], n); ok {
		end = time.After(duration(life))
	}
	select {
	case <-terminated:
		writeLine("stop")
		stop(o["stop"])
		os.Exit(0)
	case <-end:
		writeLine("ends %s", code)
		os.Exit(number(code))
	}
}

// live makes the container healthy and later unhealthy, at the times in the options.
func live(o map[string]string) {
	if o["healthy"] == "never" {
		return
	}
	time.Sleep(duration(o["healthy"]))
	os.WriteFile(healthFile(), nil, 0o666)
	writeLine("healthy")
	if o["sick"] != "" {
		time.Sleep(duration(o["sick"]))
		os.Remove(healthFile())
		writeLine("sick")
	}
}

func stop(how string) {
	if how == "never" {
		select {}
	}
	time.Sleep(duration(how))
}

// serveHTTP answers probes and hooks at the paths /NAME. With ?as=CONTAINER it answers a hook of that other
// container.
func serveHTTP(address string) {
	http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		which := strings.TrimPrefix(r.URL.Path, "/")
		o := map[string]string{}
		for name, values := range r.URL.Query() {
			o[name] = values[0]
		}
		do := probe
		if which == "postStart" || which == "preStop" {
			do = hook
		}
		if do(which, o) != 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
}

// serveTCP listens while the container is healthy. A TCP probe sends no data that would name it, so each connection
// counts as a readiness probe.
func serveTCP(address string) {
	for ; ; time.Sleep(10 * time.Millisecond) {
		if !healthy() {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		go func() {
			for healthy() {
				time.Sleep(10 * time.Millisecond)
			}
			l.Close()
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			c.Close()
			probe("readiness", nil)
		}
	}
}

type checker struct {
	health.UnimplementedHealthServer
}

// Check answers a gRPC probe, whose service name is the kind of probe.
func (checker) Check(_ context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if probe(r.Service, nil) == 0 {
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
}

func serveGRPC(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		writeLine("bad address: %v", err)
		return
	}
	s := grpc.NewServer()
	health.RegisterHealthServer(s, checker{})
	s.Serve(l)
}
