package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"outrider.dev/test/e2e/load"
)

// tier runs one service in a chain of services.
func tier(o optionSet) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	emitStarted()
	pod, err := os.Hostname()
	must(err)
	mux, underWay := http.NewServeMux(), atomic.Int64{}
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	service := load.NewTier(o.name, pod, o.call, o.timeout)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		underWay.Add(1)
		defer underWay.Add(-1)
		service.ServeHTTP(w, r)
	})
	l, err := net.Listen("tcp", o.listen)
	must(err)
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	emit("healthy")
	for s := range signals {
		emit("signal", "is", s, "under-way", underWay.Load())
		switch s {
		case syscall.SIGUSR1:
			os.Exit(1)
		case syscall.SIGUSR2:
			go eat(o.eat)
		case syscall.SIGTERM:
			emit("stopping")
			time.Sleep(o.stop)
			ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
			defer cancel()
			err := server.Shutdown(ctx)
			emit("done", "under-way", underWay.Load(), "error", err)
			return
		}
	}
}

// generate runs the load generator.
func generate(o optionSet) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	emitStarted()
	pod, err := os.Hostname()
	must(err)
	done := load.Run(ctx, load.Options{
		URL: o.call, Want: o.want, Pod: pod, Rate: o.rate,
		Report: func(f load.Failure) { emit("lost", "json", asJSON(f)) },
		Every:  func(t map[string]load.Tally) { emit("load", "json", asJSON(t)) },
	})
	emit("loaded", "json", asJSON(done))
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	must(err)
	return string(text)
}
