package kube

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"outrider.dev/build/commands"
	"outrider.dev/internal/image"
	"outrider.dev/test/cluster"
)

// inside is set in the test that runs in the cluster.
const inside = "OUTRIDER_KUBE_INSIDE"

// root is the repository.
const root = "../.."

// TestMain brings a cluster up and starts this test again inside of it: nothing else
// reaches its API server.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("OUTRIDER_E2E") != "1" || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := enter(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		status = 1
	}
	os.Exit(status)
}

func enter(ctx context.Context) (status int, err error) {
	cache, err := filepath.Abs(filepath.Join(root, ".cache", "cluster"))
	if err != nil {
		return 1, err
	}
	version := os.Getenv("KUBE")
	if version == "" {
		version = cluster.Versions[0]
	}
	c, err := cluster.Up(ctx, cluster.Options{Version: version, Runtime: os.Getenv("RUNTIME"), Cache: cache, Dir: filepath.Join(cache, "kube", version), Progress: os.Stderr,
		Features: []string{"ClusterTrustBundle", "ClusterTrustBundleProjection"}, APIs: []string{"certificates.k8s.io/v1beta1/clustertrustbundles"}})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Down()) }()
	if err := loadImages(ctx, c); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := c.Enter(ctx, self, os.Args[1:]...)
	cmd.Env = append(cmd.Env, inside+"=1", "KUBECONFIG="+c.Kubeconfig())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 1, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// loadImages builds outriderd, and the agent as the image of outrider-init, and puts them into the
// cluster, by the names that the chart has.
func loadImages(ctx context.Context, c *cluster.Cluster) error {
	for command, name := range map[string]string{commands.ControlPlane: "outriderd", commands.Agent: "outrider-proxy"} { // any order: each is an image
		binary, tarball := filepath.Join(c.Dir(), command), filepath.Join(c.Dir(), name+".tar")
		if err := commands.Build(ctx, c.Dir(), command); err != nil {
			return err
		}
		at := "/usr/local/bin/" + command
		img := image.Image{Name: "outrider.dev/" + name + ":dev", User: "65532", Files: map[string]string{at: binary}, Entrypoint: []string{at}}
		if err := img.WriteFile(tarball); err != nil {
			return err
		}
		if err := c.LoadImage(ctx, tarball); err != nil {
			return err
		}
	}
	return nil
}
