package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// inContainer is a script that runs a command as the app's user, with the directories of the pod mounted at their
// paths in a container. The shell is the first process of a PID namespace, so that all its processes end with it.
// A parent-death signal cannot be used, because the kernel clears it when a process changes its user.
const inContainer = `set -e
root=$1 states=$2 own=$3 user=$4; shift 4
mount -t tmpfs none "$root"
for d in usr lib lib64 bin; do
	[ -d "/$d" ] && mkdir "$root/$d" && mount --rbind "/$d" "$root/$d"
done
mkdir -p "$root/outrider/state" "$root/outrider/own" "$root/run" "$root/proc"
mount -t proc none "$root/proc"
mount --bind "$own" "$root/outrider/own"
mount --bind "$states" "$root/outrider/state"
mount -o remount,ro,bind "$root/outrider/state"
touch "$root/run/outrider-agent"
mount --bind "$AGENT" "$root/run/outrider-agent"
chroot --userspec="$user" "$root" env PATH=/run "$@" & wait $!`

// Each example for the agent's socket in the output of "wait --help" works unchanged.
func TestTheExamplesOfWait(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	help, err := exec.Command(w.Binaries.Agent, "wait", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var examples [][]string
	for line := range strings.Lines(string(help)) {
		if words := strings.Fields(line); strings.HasPrefix(strings.TrimSpace(line), "outrider-agent wait ") && strings.Contains(line, "unix://") {
			examples = append(examples, words)
		}
	}
	if len(examples) != 2 {
		t.Fatalf("%d examples with a socket: %s", len(examples), help)
	}
	p := w.Pod("waiters")
	p.Env = []string{`ISTIO_KUBE_APP_PROBERS={"/app-health/app/startupz": {"tcpSocket": {"port": 8080}}}`}
	users := []int{harness.ProxyUser, harness.AppUser} // the users of the proxy's container and of an application's
	var waiters []*process.Process
	for i, example := range examples {
		root := filepath.Join(w.Dir, fmt.Sprintf("root-%d", i))
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-c", inContainer, "sh", root, filepath.Join(p.Dir, "states"), filepath.Join(p.Dir, "states", "outrider-proxy"),
			fmt.Sprintf("%d:%[1]d", users[i])}, example...)
		cmd := exec.Command("unshare", args...)
		cmd.Env = append(os.Environ(), "AGENT="+w.Binaries.Agent)
		waiters = append(waiters, process.Start(t, cmd, process.Options{In: p.Do}))
	}
	a := p.Agent()
	a.Ready()
	process.Eventually(t, "both are held", func() bool {
		return strings.Contains(a.Get(15020, "/metrics").Body, fmt.Sprintf("\noutrider_agent_waiters %d\n", len(examples)))
	}, a, waiters[0], waiters[1])
	harness.Listen(w, p.Namespace, harness.AppUser, ":8080")
	for i, waiter := range waiters {
		if status := waiter.Exit(); status != 0 || waiter.Log() != "" {
			t.Errorf("%s: status %d: %s", strings.Join(examples[i], " "), status, waiter.Log())
		}
	}
}
