package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"outrider.dev/test/traces"
)

// record runs the scenarios, several at once, and writes a file for each.
func record(ctx context.Context, o options) error {
	all, err := scenarios(o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	r, err := recorder(ctx, o)
	if err != nil {
		return err
	}
	time.Sleep(10 * time.Second) // a kubelet that has just started delays its probes randomly
	var mu sync.Mutex
	var failed error
	var wait sync.WaitGroup
	slots := make(chan bool, o.atOnce)
	for _, s := range all {
		slots <- true
		wait.Add(1)
		go func() {
			defer func() { <-slots; wait.Done() }()
			began := time.Now()
			err := one(ctx, r, s, o)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			fmt.Printf("%5.1fs %s\n", time.Since(began).Seconds(), s.Name)
		}()
		time.Sleep(700 * time.Millisecond) // so that not all start at the same moment
	}
	wait.Wait()
	return failed
}

// If a relist in a trace deviates by [steady] or more, the scenario is recorded again, up to [attempts] times in
// total.
const (
	steady   = 120 * time.Millisecond
	attempts = 3
)

// one records a scenario, and writes the attempt with the smallest deviation of relists.
func one(ctx context.Context, r *traces.Recorder, s traces.Scenario, o options) error {
	var t traces.Trace
	for n := range attempts {
		again, err := r.Record(ctx, s)
		if err != nil {
			return err
		}
		if n == 0 || again.Unsteady < t.Unsteady {
			t = again
		}
		if t.Unsteady < steady {
			break
		}
	}
	return os.WriteFile(filepath.Join(o.out, s.Name+"."+o.kube+".txt"), t.Text(), 0o644)
}

// scenarios returns the scenarios that match the options.
func scenarios(o options) ([]traces.Scenario, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(o.scenarios, "*.txt"))
	if err != nil {
		return nil, err
	}
	var out []traces.Scenario
	for _, file := range files {
		s, err := traces.Read(file)
		if err != nil {
			return nil, err
		}
		if only.MatchString(s.Name) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no scenario in %s is called %q", o.scenarios, o.only)
	}
	return out, nil
}
