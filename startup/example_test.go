package startup_test

import (
	"fmt"
	"time"

	"outrider.dev/startup"
)

func ExampleCheck() {
	plan, err := startup.Parse("app after proxy is healthy")
	if err != nil {
		panic(err)
	}
	for _, v := range startup.Check(plan, startup.Timeline{
		{Container: "proxy", What: startup.IsStarted},
		{Container: "app", What: startup.IsStarted, At: 500 * time.Millisecond},
		{Container: "proxy", What: startup.IsHealthy, At: 2 * time.Second},
	}) {
		fmt.Printf("%s: %s, %s too early\n", v.Edge, v.How, v.By)
	}
	// Output: app after proxy is healthy: started-too-early, 1.5s too early
}

func ExamplePlan_Validate() {
	plan, err := startup.Parse(`
container app is plain, healthy by readiness-probe
container outrider-proxy is sidecar, healthy by post-start
app after istio-proxy is healthy
`)
	if err != nil {
		panic(err)
	}
	for _, f := range plan.Validate(34) {
		fmt.Printf("%s: %s\nhint: %s\n", f.Code, f.Message, f.Remedy)
	}
	// Output:
	// unknown-container: app waits for a container that the pod does not have: "istio-proxy"
	// hint: containers here are app, outrider-proxy; did you mean outrider-proxy?
}

func ExampleMechanism_Keeps() {
	plan, err := startup.Parse(`
container proxy is plain, healthy by post-start
container app is plain
app after proxy is healthy
`)
	if err != nil {
		panic(err)
	}
	for _, m := range []startup.Mechanism{startup.Gate, startup.Hold} {
		answer := m.Keeps(plan, plan.Edges[0], 34)
		fmt.Printf("%s keeps it %s\n", m, answer.Start)
		for _, l := range answer.Limits {
			fmt.Println("-", l.Code)
		}
	}
	// Output:
	// gate keeps it at every start
	// - needs-command
	// hold keeps it at the first start
	// - fails-open
	// - first-start-only
	// - hides-pod-ip
	// - no-stop-order
}
