// Package e2e tests on a real cluster, with a real kubelet, that pods start and stop in order.
// "make e2e" runs it; its report lists every case.
package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/test/e2e/world"
	"outrider.dev/test/previous"
)

// w is the cluster in which this process runs; nil if it runs outside of one.
var w *world.World

func TestMain(m *testing.M) {
	flag.Parse()
	root, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	if os.Getenv("OUTRIDER_E2E") != "1" {
		fmt.Println("skipped: it brings up a real cluster, as root, and builds it if need be: make e2e, or set OUTRIDER_E2E=1")
		os.Exit(0)
	}
	o := world.Options{Root: root, Version: os.Getenv("KUBE"), Runtime: os.Getenv("RUNTIME"), Name: "e2e", Progress: os.Stderr}
	ctx, cancel := context.WithCancel(context.Background())
	if skew() {
		build, err := previous.Get(ctx, root, cmp.Or(os.Getenv("ENVOY"), ".cache/envoy/envoy"), os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		o.Name, o.Images = "skew", build.Images()
		useOld(build)
	}
	if !world.Inside() {
		os.Exit(world.Enter(o))
	}
	if w, err = world.Open(ctx, root); err == nil {
		release := w.Head()
		if skew() {
			release = old
		}
		err = w.Release(ctx, release, "install", underLoad().replicas, underLoad().firstUse)
	}
	if err == nil {
		err = w.Furnish(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	status := m.Run()
	report.print(os.Stdout)
	if err := report.tooFew(enough()); err != nil && !partial() {
		fmt.Fprintln(os.Stderr, "error:", err)
		status = max(status, 1)
	}
	cancel()
	os.Exit(status)
}
