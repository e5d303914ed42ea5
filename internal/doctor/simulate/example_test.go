package simulate_test

import (
	"fmt"
	"time"

	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

func ExampleRun() {
	plan, err := startup.Parse("app after proxy is healthy, by gate")
	if err != nil {
		panic(err)
	}
	behaviour, err := simulate.Parse("proxy: image takes 2s, healthy after 1s\napp: calls proxy after 100ms or exits 1, completes after 4s")
	if err != nil {
		panic(err)
	}
	behaviour.Until = 9 * time.Second
	outcome, err := simulate.Run(simulate.Scenario{Pod: simulate.PodOf(plan), Plan: plan, Behaviour: behaviour})
	if err != nil {
		panic(err)
	}
	fmt.Println("9 s of a pod:")
	fmt.Print(outcome.Chart(plan).Text(chart.TextOptions{Width: 60}))
	fmt.Println(len(outcome.Violations), "violations,", outcome.Refused(), "refused")
	// Output:
	// 9 s of a pod:
	//       0s          2s          4s          6s          8s
	// app   ··················████████████████████████o     ██████
	// proxy ░░░░░░░░░░░░▒▒▒▒▒▒████████████████████████████████████
	// (pod)             A
	// ░ pulling the image   · waiting for dependencies
	// ▒ running, not healthy   █ healthy
	// A its IP is in the API   o completed
	// 0 violations, 0 refused
}
