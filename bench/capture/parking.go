package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// destination is where the app connects to. No host has this address (RFC 5737), so
	// that only the proxy can answer.
	destination = "192.0.2.1:80"
	// proxyAddress is where the redirect leads.
	proxyAddress = "127.0.0.1:15001"

	// connectLimit is longer than any connection here should take.
	connectLimit = 20 * time.Second
	limitRuns    = 3
)

// limits are the values of --park-limit whose end is measured.
var limits = []string{"1s", "5s"}

// measureParking fills in the tables about connections.
func measureParking(ctx context.Context, o options, r *report) error {
	kinds := []struct {
		name     string
		flags    []string
		parallel int // trials at a time: those that wait do not disturb one another
		trial    func(context.Context, *namespace) (time.Duration, error)
	}{
		{"listener first: until connected", nil, 1, listenerFirst},
		{"listener 0.1-2.5 s late, parked: from listening to connected", nil, o.n, listenerLate},
		{"no listener, --park=off: until refused", []string{"--park=off"}, 1, untilRefused},
	}
	for _, k := range kinds {
		delays, _, err := trials(ctx, o.agent, k.flags, o.n, k.parallel, k.trial)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		r.Connections = append(r.Connections, connectionRow{Case: k.name, N: len(delays), Delay: spreadOf(delays)})
	}
	for _, limit := range limits {
		ends, parked, err := trials(ctx, o.agent, []string{"--park-limit=" + limit}, limitRuns, limitRuns, untilRefused)
		if err != nil {
			return fmt.Errorf("--park-limit=%s: %w", limit, err)
		}
		r.Limits = append(r.Limits, limitRow{Limit: limit, N: len(ends), Refused: spreadOf(ends), Parked: median(parked)})
	}
	return nil
}

// trials makes n namespaces with the rules of capture, runs trial once in each, and
// returns the times and how many SYNs the rules have parked.
func trials(ctx context.Context, agent string, flags []string, n, parallel int, trial func(context.Context, *namespace) (time.Duration, error)) ([]time.Duration, []float64, error) {
	namespaces, err := newNamespaces(n)
	defer func() {
		for _, ns := range namespaces {
			ns.close()
		}
	}()
	if err != nil {
		return nil, nil, err
	}
	argv := slices.Concat([]string{agent, "capture"}, redirect, flags)
	for _, ns := range namespaces {
		err := ns.do(func() error {
			_, err := timed(ctx, argv)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	times, parked, errs := make([]time.Duration, n), make([]float64, n), make([]error, n)
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, ns := range namespaces {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if times[i], errs[i] = trial(ctx, ns); errs[i] == nil {
				parked[i], errs[i] = parkedIn(ctx, ns, agent)
			}
		})
	}
	all.Wait()
	return times, parked, errors.Join(errs...)
}

// parkedIn reads from the rules of a namespace how many SYNs they have parked.
func parkedIn(ctx context.Context, ns *namespace, agent string) (float64, error) {
	var answer struct{ Parked float64 }
	err := ns.do(func() error {
		cmd := exec.CommandContext(ctx, agent, "capture", "verify", "--output=json")
		cmd.Env = environment
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("asking how many were parked: %w", err)
		}
		return json.Unmarshal(text, &answer)
	})
	return answer.Parked, err
}

func listenerFirst(ctx context.Context, ns *namespace) (time.Duration, error) {
	l, _, err := listen(ctx, ns)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	begin, end, err := connect(ctx, ns)
	return end.Sub(begin), err
}

func listenerLate(ctx context.Context, ns *namespace) (time.Duration, error) {
	var end time.Time
	connected := make(chan error, 1)
	go func() {
		var err error
		_, end, err = connect(ctx, ns)
		connected <- err
	}()
	// With the kernel's steps of one second, a fixed time would always meet the same
	// part of a step.
	select {
	case <-time.After(100*time.Millisecond + rand.N(2400*time.Millisecond)):
	case err := <-connected:
		return 0, fmt.Errorf("want a connection that waits, got: %v", err)
	}
	l, listening, err := listen(ctx, ns)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	err = <-connected
	return end.Sub(listening), err
}

func untilRefused(ctx context.Context, ns *namespace) (time.Duration, error) {
	begin, end, err := connect(ctx, ns)
	if !errors.Is(err, unix.ECONNREFUSED) {
		return 0, fmt.Errorf("want %q, got: %v", unix.ECONNREFUSED, err)
	}
	return end.Sub(begin), nil
}

// connect opens a connection as an app does and returns when it began and ended.
func connect(ctx context.Context, ns *namespace) (begin, end time.Time, err error) {
	err = ns.do(func() error {
		d := net.Dialer{Timeout: connectLimit}
		d.SetMultipathTCP(false)
		begin = time.Now()
		c, err := d.DialContext(ctx, "tcp", destination)
		end = time.Now()
		if err != nil {
			return err
		}
		return c.Close()
	})
	return begin, end, err
}

// listen does what a proxy does, and says when.
func listen(ctx context.Context, ns *namespace) (l net.Listener, since time.Time, err error) {
	err = ns.do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // as Envoy
		var err error
		l, err = config.Listen(ctx, "tcp", proxyAddress)
		since = time.Now()
		return err
	})
	return l, since, err
}
