// Command cluster measures on a real kubelet the start of a pod with each variant of the mesh's settings: the
// time from the request that creates the pod to the application's first instruction, and to its first successful
// call, which goes through the proxy if the pod has one. One variant is a pod without a mesh. There is one pod at
// a time, and the variants alternate.
//
//	go run ./bench/cluster [-n 20] [-kube v1.34] [-runtime containerd] [-ways REGEX]
//
// With -runtime containerd-2 it includes the variants that use the node's plugins. With -probes 300 it instead
// measures the processor time of liveness probes, for 300 seconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/e2e/world"
)

// A way is a variant: a pod with the annotations that determine how it starts.
type way struct {
	name        string
	namespace   string
	annotations map[string]string
	byNode      bool // needs a node with the plugins
	appFirst    bool // the pod lists the application before the proxy
}

var all = []way{
	{name: "no mesh", namespace: "centre"},
	{name: "gate", namespace: "shop", annotations: by(contract.InitContained, "gate")},
	{name: "gate, image volume", namespace: "shop", annotations: by(contract.InitVolume, "gate"), byNode: true},
	{name: "gate, init: none", namespace: "shop", annotations: by(contract.InitNone, "gate")},
	{name: "gate of the node", namespace: "shop", annotations: by(contract.InitByNode, "gate"), byNode: true},
	{name: "native", namespace: "shop", annotations: by(contract.InitContained, "native")},
	{name: "native, the node captures", namespace: "shop", annotations: by(contract.InitByNode, "native"), byNode: true},
	{name: "native by probe", namespace: "shop", annotations: with(by(contract.InitContained, "native"), contract.NativeRelease, "probe")},
	{name: "hold", namespace: "shop", annotations: by(contract.InitContained, "hold")},
	{name: "parking alone", namespace: "shop", annotations: by(contract.InitContained, "off")},
	{name: "parking alone, the node captures", namespace: "shop", annotations: by(contract.InitByNode, "off"), byNode: true},
	{name: "the same, the application listed first", namespace: "shop", annotations: by(contract.InitByNode, "off"), byNode: true, appFirst: true},
}

func by(init, start string) map[string]string {
	return map[string]string{contract.Init: init, contract.Start: start}
}

func with(m map[string]string, key, value string) map[string]string {
	m[key] = value
	return m
}

func main() {
	n := flag.Int("n", 20, "pods of each way")
	probes := flag.Int("probes", 0, "measure the processor time of so many liveness probes instead")
	kube := flag.String("kube", "", "version of Kubernetes (default the test cluster's)")
	runtime := flag.String("runtime", "", "container runtime (default the test cluster's)")
	only := flag.String("ways", "", "regular expression of the ways to measure, besides no mesh (default all)")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: error: -ways %q: %v\n", *only, err)
		os.Exit(2)
	}
	root, err := os.Getwd()
	if err == nil && !world.Inside() {
		os.Exit(world.Enter(world.Options{Root: root, Version: *kube, Runtime: *runtime, Name: "bench", Progress: os.Stderr}))
	}
	if err == nil {
		err = measure(context.Background(), root, *n, *probes, pattern)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster: error:", err)
		os.Exit(1)
	}
}

// times are the measurements of one variant: the times until the first container starts, until the
// application's first instruction, and until its first successful call.
type times struct{ container, first, called []time.Duration }

func measure(ctx context.Context, root string, n, probes int, only *regexp.Regexp) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := world.Open(ctx, root)
	if err != nil {
		return err
	}
	if err := w.Install(ctx, 1, world.Overloaded); err != nil {
		return err
	}
	if err := w.Furnish(ctx); err != nil {
		return err
	}
	if probes > 0 {
		return measureProbes(ctx, w, probes)
	}
	ways := slices.DeleteFunc(slices.Clone(all), func(way way) bool {
		return way.byNode && !w.ByNode || way.name != all[0].name && !only.MatchString(way.name)
	})
	took := make([]times, len(ways))
	for round := range n {
		for i, way := range ways {
			if err := one(ctx, w, way, fmt.Sprintf("bench-%d-%d", i, round), &took[i]); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, n)
	}
	report(w.Version, n, ways, took)
	return nil
}

func one(ctx context.Context, w *world.World, way way, name string, took *times) error {
	pod := world.Awesome(way.namespace, name)
	for key, value := range way.annotations {
		pod.Annotations[key] = value
	}
	if way.appFirst {
		world.ListProxy(pod)
	}
	began := time.Now()
	p, err := w.Create(ctx, pod)
	if err != nil {
		return err
	}
	defer p.Remove(context.WithoutCancel(ctx))
	if err := p.Until(ctx, "called", func() bool { _, ok := p.Has("app", "called", 1); return ok }); err != nil {
		return err
	}
	started, _ := p.Has("app", "started", 1)
	config, _ := p.Has("app", "config", 1)
	if p.Restarts("app") > 0 || config.Values["result"] != "ok" {
		return fmt.Errorf("%s: the application did not start at once: what is measured would be something else\n%s", way.name, p.Describe())
	}
	took.first = append(took.first, started.At.Sub(began))
	took.called = append(took.called, config.At.Sub(began))
	took.container = append(took.container, firstContainer(p, began))
	if err := p.StartDelete(ctx); err != nil {
		return err
	}
	return p.Until(ctx, "gone", func() bool { _, there := p.Status(); return !there })
}

// firstContainer returns the time from a moment (began) to the start of the pod's first container.
func firstContainer(p *world.Pod, began time.Time) time.Duration {
	for _, e := range p.Timeline() {
		if e.Container != "" {
			return p.Time(e).Sub(began)
		}
	}
	return 0
}

func report(version string, n int, ways []way, took []times) {
	fmt.Printf("\nkubelet %s, n=%d each, in turns; milliseconds from the request that creates the pod: min / median / max\n", version, n)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "way\tfirst container\tfirst instruction\tfirst call answered\tmore than without a mesh (medians): first instruction, first call")
	for i, way := range ways {
		more := median(took[i].called) - median(took[0].called)
		first := median(took[i].first) - median(took[0].first)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%+d, %+d, ratio %.2f\n", way.name, spread(took[i].container), spread(took[i].first), spread(took[i].called),
			first.Milliseconds(), more.Milliseconds(), float64(median(took[i].called))/float64(median(took[0].called)))
	}
	t.Flush()
}

func spread(d []time.Duration) string {
	s := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("%d / %d / %d", s[0].Milliseconds(), median(s).Milliseconds(), s[len(s)-1].Milliseconds())
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
