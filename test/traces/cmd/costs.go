package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outrider.dev/test/traces"
)

// costs measures how long each ordering mechanism takes from the creation of a pod to the app's
// first instruction, one pod at a time, alternating between the mechanisms.
func costs(ctx context.Context, o options) error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(o.scenarios), "costs", "*.txt"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no ways to measure beside %s: %v", o.scenarios, err)
	}
	r, err := recorder(ctx, o)
	if err != nil {
		return err
	}
	took := map[string][]time.Duration{}
	abouts := map[string]string{}
	for n := range o.n {
		for _, file := range files {
			s, err := traces.Read(file)
			if err != nil {
				return err
			}
			way := s.Name
			abouts[way] = s.About
			s.Name = fmt.Sprintf("cost-%s-%d", way, n)
			t, err := r.Record(ctx, s)
			if err != nil {
				return err
			}
			took[way] = append(took[way], t.Runs["app"])
			time.Sleep(time.Second) // until the previous pod is gone
		}
	}
	fmt.Printf("kubelet %s, n=%d, seconds from the pod's creation to the app's first instruction: min / median / max\n", o.kube, o.n)
	for _, file := range files {
		way := strings.TrimSuffix(filepath.Base(file), ".txt")
		t := took[way]
		slices.Sort(t)
		fmt.Printf("%-16s %.2f / %.2f / %.2f  %s\n", way, t[0].Seconds(), median(t).Seconds(), t[len(t)-1].Seconds(), abouts[way])
	}
	return nil
}

func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
