// Package world is a cluster with Outrider in it, for tests and measurements: the images,
// outriderd as a Deployment, services to call, and pods whose every start and stop is
// known to the millisecond.
//
//	func main() { os.Exit(world.Enter(world.Options{...})) }   outside: brings the cluster up, runs this program in it
//	w, err := world.Open(ctx)                                  inside
//
// The facts about a pod come from its containers and from the API server, not only from
// Outrider's own reports:
//
//	logs of the applications   first instruction, each failed call, SIGTERM received, the exit
//	logs of the proxy          ready, no longer ready
//	containerd                 started, ended, exit status
//	API server                 status, address, restarts
//
// All use the same clock.
package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"outrider.dev/build/image"
	"outrider.dev/test/cluster"
)

// Images of the pods.
const (
	AppImage   = "test.outrider.dev/app:1"
	ProxyImage = "outrider.dev/outrider-proxy:dev"
	ServeImage = "outrider.dev/outriderd:dev"
	NodeImage  = "outrider.dev/outrider-node:dev"
)

// dirVariable is the environment variable with the cluster's directory, for the program inside.
const dirVariable = "OUTRIDER_E2E_CLUSTER"

// runtimeVariable is the environment variable with the container runtime; nodesRuntime is the runtime with NRI.
const (
	runtimeVariable = "OUTRIDER_E2E_RUNTIME"
	nodesRuntime    = "containerd-2"
)

// Inside reports whether this process was started by [Enter].
func Inside() bool { return os.Getenv(dirVariable) != "" }

// Options configure a cluster for Enter.
type Options struct {
	Root     string    // root of the repository
	Version  string    // version of Kubernetes; empty: the default
	Runtime  string    // container runtime; empty: the default
	Name     string    // part of the cluster's directory, so that clusters do not collide
	Images   []string  // image tarballs besides Outrider's and the application's
	Progress io.Writer // receives a line for each step

	Features, APIs []string // see [cluster.Options]
}

// Enter builds the programs for the cluster, brings a cluster up, starts this program again inside
// it with the same arguments, and ends the cluster. It returns the exit status. Within "cluster run" it
// ignores the options, uses the running cluster and leaves it up.
func Enter(o Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := enter(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return status
}

func enter(ctx context.Context, o Options) (status int, err error) {
	c, end, err := bringUp(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := loadImages(ctx, c, o); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	inside := c.Enter(ctx, self, os.Args[1:]...)
	inside.Env = append(inside.Environ(), dirVariable+"="+c.Dir(), "OUTRIDER_E2E_KUBE="+c.Version(), runtimeVariable+"="+c.Runtime())
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := inside.Run(); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	} else if err != nil {
		return 1, err
	}
	return 0, nil
}

// bringUp returns a cluster, and a function that the caller calls when it no longer needs the cluster.
func bringUp(ctx context.Context, o Options) (c *cluster.Cluster, end func() error, err error) {
	if dir := os.Getenv(cluster.Shared); dir != "" {
		c, err = cluster.Open(dir)
		return c, func() error { return nil }, err
	}
	version := cmp.Or(o.Version, cluster.Versions[0])
	cache := filepath.Join(o.Root, ".cache", "cluster")
	c, err = cluster.Up(ctx, cluster.Options{
		Version: version, Runtime: o.Runtime, Cache: cache, Dir: filepath.Join(cache, o.Name, version+o.Runtime), Progress: o.Progress,
		Features: o.Features, APIs: o.APIs,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Down, nil
}

// loadImages loads the images into the cluster. If another program has already loaded the images of Outrider and
// the application, only those in the options are loaded.
func loadImages(ctx context.Context, c *cluster.Cluster, o Options) error {
	tarballs, loaded := o.Images, filepath.Join(c.Dir(), "conf", "images") // deleted with the cluster
	if _, err := os.Stat(loaded); err != nil {
		// Lock the repository: clusters that start at the same time would write the same files.
		root, err := os.Open(o.Root)
		if err != nil {
			return err
		}
		defer root.Close()
		if err := syscall.Flock(int(root.Fd()), syscall.LOCK_EX); err != nil {
			return err
		}
		ours, err := images(ctx, o)
		if err != nil {
			return err
		}
		tarballs = append(ours, tarballs...)
	}
	for _, tarball := range tarballs {
		if err := c.LoadImage(ctx, tarball); err != nil {
			return err
		}
	}
	return os.WriteFile(loaded, nil, 0o644)
}

// images builds the images of Outrider, as "make images" does, and of the application.
func images(ctx context.Context, o Options) (tarballs []string, err error) {
	fmt.Fprintln(o.Progress, "images")
	cmd := exec.CommandContext(ctx, "make", "--silent", "images")
	cmd.Dir, cmd.Stderr = o.Root, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("make images: %w", err)
	}
	dir := filepath.Join(o.Root, "bin", "images")
	app := filepath.Join(o.Root, "bin", "e2e-app")
	if err := build(ctx, o.Root, app, "outrider.dev/test/e2e/app"); err != nil {
		return nil, err
	}
	img := image.Image{Name: AppImage, Files: map[string]string{"/app": app}, Entrypoint: []string{"/app"}, User: "65532"}
	tarball := filepath.Join(dir, "app.tar")
	if err := img.WriteFile(tarball); err != nil {
		return nil, err
	}
	return []string{filepath.Join(dir, "outriderd.tar"), filepath.Join(dir, "outrider-proxy.tar"), filepath.Join(dir, "outrider-node.tar"), tarball}, nil
}

// build builds a program of the repository or of a module that it requires.
func build(ctx context.Context, root, output, source string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", output, source)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", source, err, out)
	}
	return nil
}
