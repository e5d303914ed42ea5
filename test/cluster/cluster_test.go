package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/cluster"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// needCluster skips a test if the machine cannot run a cluster.
func needCluster(t *testing.T) {
	t.Helper()
	if os.Getenv("OUTRIDER_E2E") != "1" {
		t.Skip("brings up a real cluster, as root, and builds it if need be: set OUTRIDER_E2E=1")
	}
}

// nightly skips tests that only the nightly run executes.
func nightly(t *testing.T) {
	t.Helper()
	if !tier.Nightly() {
		t.Skip("one cluster that is ended and one that is killed are enough for this run: OUTRIDER_NIGHTLY=1 has all")
	}
}

// options returns the options of a cluster that only this test uses. The cluster's logs stay after a failure.
func options(t *testing.T) cluster.Options {
	t.Helper()
	cache, err := filepath.Abs("../../.cache/cluster")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "test", strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	return cluster.Options{Version: os.Getenv("KUBE"), Runtime: os.Getenv("RUNTIME"), Cache: cache, Dir: dir, Progress: testLog{t}}
}

func up(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestCluster shows that a cluster with a pod leaves nothing behind.
func TestCluster(t *testing.T) {
	needCluster(t)
	o := options(t)
	if err := cluster.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := look(t)
	c := up(t, o)
	spaces, release := namespaces(t, c)
	// Other suites test the functions of a cluster. This test only checks that nothing of a pod is left.
	for _, args := range [][]string{{"run", "app", "--image=" + cluster.BaseImage, "--", "sleep", "1h"}, {"wait", "--for=condition=Ready", "pod/app", "--timeout=5m"}} {
		if out, err := c.Enter(t.Context(), "kubectl", args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %q: %v: %s", args, err, out)
		}
	}
	t.Run("it is found where it is", func(t *testing.T) {
		found, err := cluster.Open(o.Dir)
		if err != nil || found.PID() != c.PID() {
			t.Errorf("Open: %v, %v", found, err)
		}
		if _, err := cluster.Up(t.Context(), o); !errors.Is(err, cluster.ErrUp) {
			t.Errorf("Up a second time: %v, want %v", err, cluster.ErrUp)
		}
	})
	t.Run("a guest ends with its context", func(t *testing.T) { testGuestEnds(t, c, spaces) })
	start := time.Now()
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	t.Logf("down after %v", time.Since(start).Round(time.Millisecond))
	if left := processes(spaces); left != nil {
		t.Errorf("still run:\n%s", strings.Join(left, "\n"))
	}
	release()
	wantNoProcessNaming(t, o.Dir)
	before.wantNothingLeft(t)
	if _, err := cluster.Open(o.Dir); !errors.Is(err, cluster.ErrDown) {
		t.Errorf("Open after Down: %v, want %v", err, cluster.ErrDown)
	}
}

func testGuestEnds(t *testing.T, c *cluster.Cluster, spaces []string) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.Enter(ctx, "sh", "-c", "trap 'kill $!; exit 3' TERM; seconds=4321; sleep $seconds & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The pattern must match only the command sleep, and not the shell's command line, which contains its script
	// before the shell has set its trap.
	sleeps := func() bool {
		return strings.Contains(strings.Join(processes(spaces), "\n"), " sleep 4321")
	}
	process.Eventually(t, "the command of Enter", sleeps)
	cancel()
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 3 {
		t.Errorf("exit status %d, want 3, of a command that handles SIGTERM", status)
	}
	process.Eventually(t, "its end, with the context of Enter", func() bool { return !sleeps() })
}

// TestInterrupted ends the bring-up at different moments, by the signals of a user, of a service manager and of
// the kernel.
func TestInterrupted(t *testing.T) {
	needCluster(t)
	program := filepath.Join(t.TempDir(), "cluster")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tests := map[string]struct {
		after  string
		signal syscall.Signal
		status int      // exit status; -1 if a signal ends the process
		args   []string // the flag --dir is inserted after the first argument
	}{
		"Ctrl-C while containerd starts":        {"etcd, containerd and kube-apiserver started", syscall.SIGINT, 130, []string{"up"}},
		"SIGTERM once the API server is ready":  {"kube-apiserver ready", syscall.SIGTERM, 130, []string{"up"}},
		"Ctrl-C with the node ready":            {"node ready", syscall.SIGINT, 130, []string{"up"}},
		"SIGKILL once the API server is ready":  {"kube-apiserver ready", syscall.SIGKILL, -1, []string{"up"}},
		"Ctrl-C before anything has been built": {"", syscall.SIGINT, 130, []string{"up"}},
		"SIGTERM while a command has it":        {"it is here", syscall.SIGTERM, 130, []string{"run", "sh", "-c", `ls "$OUTRIDER_CLUSTER/kubeconfig" && echo it is here >&2; sleep 4322`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.signal != syscall.SIGKILL {
				nightly(t)
			}
			o := options(t)
			before := look(t)
			cmd := exec.Command(program, slices.Insert(slices.Clone(tt.args), 1, "--dir", o.Dir)...)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := process.StartBound(cmd); err != nil {
				t.Fatal(err)
			}
			if tt.after == "" {
				time.Sleep(100 * time.Millisecond) // the signal arrives during the build, with which the bring-up begins
				cmd.Process.Signal(tt.signal)
			}
			seen := tt.after == ""
			for s := bufio.NewScanner(stderr); s.Scan(); {
				t.Log(s.Text())
				if !seen && strings.HasSuffix(s.Text(), tt.after) {
					seen = true
					cmd.Process.Signal(tt.signal)
				}
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); !seen || got != tt.status {
				t.Errorf("exit status %d, want %d; seen %q: %v", got, tt.status, tt.after, seen)
			}
			before.wantNothingLeft(t)
			wantNoProcessNaming(t, o.Dir)
			if err := cluster.Down(o.Dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// testLog writes to the log of a test.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
