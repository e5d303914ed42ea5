package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/internal/model/simulate"
	"outrider.dev/internal/model/verify"
	"outrider.dev/startup"
)

// A testCase is one row of the table.
type testCase struct {
	name   string
	unit   string
	figure func(done int, took time.Duration) float64
	once   func() (done int, what string, err error)
}

var cases = []testCase{
	{"verify: a gate, 4 faults", "states/s", perSecond, explore(gatePlan, verify.Starts, 4)},
	{"verify: a gate, 3 faults, and a deletion", "states/s", perSecond, explore(gatePlan, verify.Stops, 3)},
	{"verify: gates in a chain, 2 faults", "states/s", perSecond, explore(chainPlan, verify.Starts, 2)},
	{"simulate: 20 containers, 2 minutes", "ms", milliseconds, play},
}

const (
	gatePlan = "container app is plain\ncontainer proxy is plain, healthy by report\n" +
		"app after proxy is healthy, by gate"
	chainPlan = "container web is plain\ncontainer app is plain, healthy by report\ncontainer proxy is plain, healthy by report\n" +
		"web after app is healthy, by gate\napp after proxy is healthy, by gate"
)

func perSecond(done int, took time.Duration) float64 { return float64(done) / took.Seconds() }

func milliseconds(_ int, took time.Duration) float64 {
	return float64(took) / float64(time.Millisecond)
}

// explore verifies a plan that holds.
func explore(text string, promise verify.Promise, faults int) func() (int, string, error) {
	return func() (int, string, error) {
		plan, err := startup.Parse(text)
		if err != nil {
			return 0, "", err
		}
		q := verify.Question{Pod: simulate.PodOf(plan), Plan: plan, Version: kubelet.Minor(34), Promise: promise}
		r, err := verify.Explore(context.Background(), q, verify.Bound{Faults: faults, States: 10_000_000, Time: 10 * time.Minute}, nil)
		if err == nil && !r.Holds() {
			err = errors.New("the plan does not hold")
		}
		return r.States, fmt.Sprintf("%d states, %d steps", r.States, r.Steps), err
	}
}

// play simulates a pod of twenty containers that crash and call one another.
func play() (int, string, error) {
	var text, said strings.Builder
	text.WriteString("container proxy is sidecar, healthy by startup-probe\n")
	said.WriteString("proxy: image takes 1s, healthy after 2s, crashes after 40s\n")
	for i := range 19 {
		fmt.Fprintf(&text, "container app%d is plain, healthy by readiness-probe\n", i)
		fmt.Fprintf(&said, "app%d: healthy after %dms, calls proxy every 500ms, crashes after %ds 3 times\n", i, 100*i, 5+i)
		if i > 0 {
			fmt.Fprintf(&text, "app%d after app%d is started, by gate\n", i, i-1)
		}
	}
	text.WriteString("* after proxy is healthy, by native\n")
	plan, err := startup.Parse(text.String())
	if err != nil {
		return 0, "", err
	}
	behaviour, err := simulate.Parse(said.String())
	if err != nil {
		return 0, "", err
	}
	o, err := simulate.Run(simulate.Scenario{Pod: simulate.PodOf(plan), Plan: plan, Behaviour: behaviour})
	return len(o.Timeline), fmt.Sprintf("%d events, %d restarts", len(o.Timeline), o.Restarts()), err
}
