package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/test/cluster"
	"outrider.dev/test/e2e/world"
)

// onNodes skips a case where no node has the plugins.
func onNodes(t *testing.T) {
	t.Helper()
	if !w.ByNode {
		t.Skip("the cluster's container runtime has no NRI: RUNTIME=containerd-2 brings up one that has")
	}
}

// noCommand leaves the program to the image.
func noCommand(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Command, c.Args = nil, c.Command[1:]
}

// restricted is what the Pod Security level of that name asks of an application.
func restricted(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(bool), RunAsNonRoot: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
}

// A namespace that enforces "restricted", and an image that names its own command: the pod gets its
// proxy and an annotation, and is captured and in order.
func TestNodeNeedsNothingOfThePod(t *testing.T) {
	onNodes(t)
	if err := w.Namespace(t.Context(), "tight", map[string]string{contract.NamespaceLabel: "enabled", contract.PodSecurityLabel: "restricted"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Client.CoreV1().Namespaces().Delete(context.Background(), "tight", metav1.DeleteOptions{}) })
	for name, changes := range map[string][]change{
		"a server":           {},
		"a job":              {works(), restart(corev1.RestartPolicyNever)},
		"a volume of images": {annotated(contract.Init, contract.InitVolume), annotated(contract.Capture, "none"), annotated(contract.Start, "gate"), unmeshed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			changes := append(changes, restricted)
			if name != "a volume of images" { // whose gates need the command
				changes = append(changes, noCommand)
			}
			p := r.webhook(awesome("tight", dashed("node", name), changes...))
			spec := p.Spec().Spec
			if _, byNode := podspec.NodeWork(p.Spec()); byNode == (name == "a volume of images") {
				t.Errorf("by the node: %t", byNode)
			}
			for _, c := range spec.InitContainers {
				if c.Name != proxy {
					t.Errorf("the pod has the init container %s", c.Name)
				}
			}
			if restarts := slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == proxy }); strings.Contains(name, "job") {
				if !restarts {
					t.Error("the proxy of a job is no sidecar")
				}
				if phase := r.ends(p); phase != corev1.PodSucceeded {
					t.Errorf("it ends as %s\n%s", phase, p.Describe())
				}
			} else {
				r.ready(p)
				if name == "a server" {
					r.emitted(p, "app", "called", 1)
					r.must(p.KillBelow("app", "app"))
					r.emitted(p, "app", "started", 2)
				}
				r.deleted(p)
			}
			r.kept(p)
		})
	}
}

// unmeshed is an application that calls nothing by the mesh: nothing is captured.
func unmeshed(p *corev1.Pod) { command("serve")(p) }

// The daemon is killed, again and again, while pods start and their applications restart: what needs
// the node waits, and is in order.
func TestNodePluginsAreKilled(t *testing.T) {
	onNodes(t)
	kills, pods := 5, 10
	if load := underLoad(); load.waves > 1 {
		kills, pods = 50, 200
	}
	r := alone(t)
	var done atomic.Bool
	var killing sync.WaitGroup
	var killed int
	killing.Go(func() {
		for ; killed < kills && !done.Load(); killed++ {
			for _, p := range w.In("outrider-system") {
				for _, name := range []string{"node", "standby"} {
					// Both at once each third time, else in turns.
					if pid := p.PID(name); pid > 0 && strings.HasPrefix(p.Spec().GenerateName, "outrider-node") && (killed%3 == 2 || (killed%3 == 0) == (name == "node")) {
						_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone
					}
				}
			}
			time.Sleep(300 * time.Millisecond) // so that they are killed while they start, too
		}
	})
	for i := 0; i < pods; i += 5 {
		var wave []*world.Pod
		for j := range 5 {
			wave = append(wave, r.webhook(awesome("shop", fmt.Sprintf("killed-%d", i+j), noCommand)))
		}
		for _, p := range wave {
			r.ready(p)
			r.must(p.KillBelow("app", "app"))
		}
		for _, p := range wave {
			r.emitted(p, "app", "started", 2)
			r.deleted(p)
			r.kept(p)
		}
	}
	done.Store(true)
	killing.Wait()
	t.Logf("%d pods, %d kills", pods, killed)
	if killed == 0 {
		t.Error("nothing was killed")
	}
}

// The container runtime is killed and started again while pods start.
func TestRuntimeRestartsUnderNodeMode(t *testing.T) {
	onNodes(t)
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r := alone(t)
	var all []*world.Pod
	for i := range 4 {
		all = append(all, r.webhook(awesome("shop", fmt.Sprintf("runtime-%d", i), noCommand)))
	}
	r.must(c.RestartRuntime(t.Context()))
	for _, p := range all {
		r.ready(p)
	}
	after := r.webhook(awesome("shop", "runtime-after", noCommand))
	r.ready(after)
	for _, p := range append(all, after) {
		r.deleted(p)
		r.kept(p)
	}
}

// The node loses its power, and comes back without having been drained: its pods start again behind
// their proxies, though the kubelet is there before the plugins.
func TestNodeRebootsUnderNodeMode(t *testing.T) {
	onNodes(t)
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	reboots := 2
	if underLoad().waves > 1 {
		reboots = 20
	}
	r := alone(t)
	var pods []*world.Pod
	for i := range 3 {
		pods = append(pods, r.webhook(awesome("shop", fmt.Sprintf("reboot-%d", i), noCommand)))
	}
	for _, p := range pods {
		r.ready(p)
	}
	for n := range reboots {
		r.must(c.Reboot(t.Context()))
		for _, p := range pods {
			r.emitted(p, "app", "config", n+2)
		}
	}
	for _, p := range pods {
		for _, got := range p.Records("app") {
			if got.Event == "config" && got.Values["result"] != "ok" {
				t.Errorf("the first call of a run: %v\n%s", got, p.Describe())
			}
		}
		r.ready(p)
		r.deleted(p)
		r.ordered(p) // calls under way are lost with the node
		if _, refused := r.entry.tally(p); refused > 0 {
			t.Errorf("%d refused\n%s", refused, p.Describe())
		}
	}
}
