package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
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
	var got posts
	service.Got = got.add
	go func() {
		for range time.Tick(time.Second) {
			got.tell()
		}
	}()
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
			if o.rude { // closes all connections at once, whatever is in flight on them
				err := server.Close()
				got.tell()
				emit("done", "under-way", underWay.Load(), "error", err)
				return
			}
			time.Sleep(o.stop)
			ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
			defer cancel()
			err := server.Shutdown(ctx)
			got.tell()
			emit("done", "under-way", underWay.Load(), "error", err)
			return
		}
	}
}

// posts collects the numbers of the POSTs that a tier gets.
type posts struct {
	mu      sync.Mutex
	numbers []string
}

func (p *posts) add(number string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.numbers = append(p.numbers, number)
}

// tell writes a line with the numbers since the last line.
func (p *posts) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.numbers) > 0 {
		emit("got", "numbers", strings.Join(p.numbers, ","))
	}
	p.numbers = nil
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
