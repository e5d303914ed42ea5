package verify_test

import (
	"context"
	"fmt"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
)

func ExampleExplore() {
	plan, err := startup.Parse(`
container proxy is plain, healthy by post-start
container app is plain
app after proxy is healthy, by hold`)
	if err != nil {
		panic(err)
	}
	pod := kubelet.Pod{Containers: []kubelet.Container{{Name: "proxy", PostStart: kubelet.Exec}, {Name: "app"}}}
	result, err := verify.Explore(context.Background(), verify.Question{Pod: pod, Plan: plan, Version: kubelet.Minor(34)},
		verify.Bound{Only: []verify.Fault{verify.BadHook}}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Holds(), result.Faults)
	fmt.Print(result.Counterexample)
	// Output:
	// false [postStart of proxy fails]
	//    0.000s proxy            started
	//    0.000s proxy            hook-failed (postStart)
	//    0.000s proxy            stopping
	//    0.000s proxy            completed
	//    0.000s app              started
}
