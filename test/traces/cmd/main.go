// Command traces records the behaviour of real kubelets: it brings a test cluster up, runs the
// scenarios of package traces in it, and writes their traces.
//
//	traces [--kube v1.34] [--only REGEXP] [--out DIR] [--at-once 5]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"outrider.dev/build/image"
	"outrider.dev/test/cluster"
	"outrider.dev/test/traces"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// options are the command's options. The process inside the cluster has the same options.
type options struct {
	kube, only, out, scenarios, dir string
	atOnce                          int
}

// run is main with its arguments and output as parameters. It returns the exit status: 0 success, 1
// failure, 2 usage.
func run(args []string, stderr io.Writer) int {
	var o options
	f := flag.NewFlagSet("traces", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.kube, "kube", cluster.Versions[0], "version of Kubernetes")
	f.StringVar(&o.only, "only", "", "only scenarios whose name matches this regular expression")
	f.StringVar(&o.out, "out", "internal/core/pod/kubelet/testdata/traces", "directory of the traces")
	f.StringVar(&o.scenarios, "scenarios", "test/traces/scenarios", "directory of the scenarios")
	f.StringVar(&o.dir, "dir", "", "of the cluster that is up; set by this command itself")
	f.IntVar(&o.atOnce, "at-once", 5, "how many pods are recorded at the same time")
	if err := f.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := record
	if o.dir == "" {
		work = func(ctx context.Context, o options) error { return withCluster(ctx, args, o) }
	}
	if err := work(ctx, o); err != nil {
		fmt.Fprintln(stderr, "traces: error:", err)
		return 1
	}
	return 0
}

// withCluster brings a cluster up, runs this program in it, and ends the cluster.
func withCluster(ctx context.Context, args []string, o options) (err error) {
	c, err := cluster.Up(ctx, cluster.Options{Version: o.kube, Progress: os.Stderr, KubeletLog: traces.KubeletLog})
	if err != nil {
		return err
	}
	defer func() {
		if down := c.Down(); err == nil {
			err = down
		}
	}()
	if err := loadWitness(ctx, c); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	inside := c.Enter(ctx, self, append(args, "--dir", c.Dir())...)
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	return inside.Run()
}

// loadWitness builds the containers' program and its image, and loads the image.
func loadWitness(ctx context.Context, c *cluster.Cluster) error {
	binary, tarball := filepath.Join(c.Dir(), "witness"), filepath.Join(c.Dir(), "witness.tar")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, "outrider.dev/test/traces/witness")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the witness: %w: %s", err, out)
	}
	img := image.Image{Name: traces.Image, Files: map[string]string{"/witness": binary}, Entrypoint: []string{"/witness"}}
	if err := img.WriteFile(tarball); err != nil {
		return err
	}
	return c.LoadImage(ctx, tarball)
}

func recorder(ctx context.Context, o options) (*traces.Recorder, error) {
	return traces.NewRecorder(ctx, traces.Options{
		Version: o.kube, Kubeconfig: os.Getenv("KUBECONFIG"), Containerd: os.Getenv("CONTAINERD_ADDRESS"),
		KubeletLog: filepath.Join(o.dir, "log", "kubelet.log"), Dir: filepath.Join(o.dir, "traces"),
	})
}
