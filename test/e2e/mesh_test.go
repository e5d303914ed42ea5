package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
	"outrider.dev/test/e2e/world"
)

const awesomeImage = world.AppImage

// job waits for a condition of a Job and judges its pods.
func (r *run) job(name, condition string, pods int) {
	r.Helper()
	_, err := w.Kubectl(r.Context(), "", "wait", "--for=condition="+condition, "job/"+name, "--namespace=shop", "--timeout="+world.Patience.String())
	r.must(err)
	all, err := w.Adopt(r.Context(), "shop", "job-name="+name)
	r.must(err)
	if len(all) != pods {
		r.Errorf("%d pods, want %d", len(all), pods)
	}
	for _, p := range all {
		r.keep(p)
		r.ends(p)
		r.kept(p)
	}
}

// An application can read its settings from the API server at its start, through the proxy and without a retry.
func TestSettingsFromTheAPIServer(t *testing.T) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	for _, m := range []startup.Mechanism{startup.Gate, startup.Native} {
		t.Run(string(m), func(t *testing.T) {
			nightly(t, m != startup.Gate)
			r := newRun(t)
			p := r.webhook(awesome("shop", "settings-"+string(m), start(m), command("serve",
				"--config=https://kubernetes.default/api/v1/namespaces/shop/configmaps/settings", "--token="+account+"token", "--roots="+account+"ca.crt",
				"--call=http://server.shop/")))
			r.ready(p)
			r.deleted(p)
			r.kept(p)
			if n := p.Restarts("app"); n > 0 {
				t.Errorf("%d restarts\n%s", n, p.Describe())
			}
		})
	}
}

// Calls of the user's init containers go through the mesh by default: the proxy is a native sidecar that starts
// before them, even if a gate holds the application.
func TestInitContainersHaveTheNetwork(t *testing.T) {
	r := newRun(t)
	p := r.webhook(awesome("shop", "init-network", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "fetch", Image: world.AppImage, Command: []string{"/app", "work", "--call=http://server.shop/", "--calls=5"}}}
	}))
	r.ready(p)
	r.deleted(p)
	r.kept(p)
}

// The kubelet's probes reach an application that accepts only mutual TLS.
func TestProbesThroughTheProxy(t *testing.T) {
	grpc := int32(9000)
	for name, probe := range map[string]*corev1.Probe{
		"http": httpProbe("/ready", 8080),
		"tcp":  {PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(8081)}}},
		"grpc": {PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: grpc}}},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, name != "grpc") // TestHooksThroughTheProxy tests HTTP probes in every run
			r := newRun(t)
			p := r.webhook(awesome("strict", "probe-"+name, command("serve", "--tcp=:8081", "--grpc=:9000", "--call=http://server.shop/"), func(p *corev1.Pod) {
				p.Spec.Containers[0].ReadinessProbe = probe
				live := *probe
				p.Spec.Containers[0].LivenessProbe = &live
			}))
			r.ready(p)
			time.Sleep(5 * time.Second) // more than three periods of the liveness probe
			if n := p.Restarts("app"); n > 0 || !p.Ready() {
				t.Errorf("ready %t, %d restarts\n%s", p.Ready(), n, p.Describe())
			}
			if out, err := plainCall(r, p, ":8080/"); err == nil {
				t.Errorf("a call without TLS was answered: %s", out)
			}
			r.deleted(p)
			r.kept(p)
		})
	}
}

// The agent executes hooks and probes when the kubelet requests them, and refuses such requests from other pods. The
// agent recognizes the kubelet by a key in pods that the webhook has injected, and by the node's address in pods that
// the command has injected.
func TestHooksThroughTheProxy(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace string
		inject    func(*run, *corev1.Pod) *world.Pod
	}{
		"by the webhook":      {"strict", (*run).webhook},
		"by the command line": {"plain", func(r *run, p *corev1.Pod) *world.Pod { return r.cli(p) }},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, name != "by the webhook")
			r := newRun(t)
			p := tt.inject(r, awesome(tt.namespace, "hooks", command("serve", "--call=http://server.shop/"), func(p *corev1.Pod) {
				p.Spec.Containers[0].ReadinessProbe = httpProbe("/ready", 8080)
				p.Spec.Containers[0].LivenessProbe = httpProbe("/ready", 8080)
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: httpProbe("/stop", 8080).HTTPGet}}
			}))
			r.ready(p)
			for _, path := range []string{":15020/app-lifecycle/app/prestopz", ":15021/app-lifecycle/app/prestopz", ":15020/app-health/app/readyz", ":15020/startup"} {
				if out, err := plainCall(r, p, path); err == nil {
					t.Errorf("another pod's call of %s was answered: %s", path, out)
				}
			}
			if _, called := p.Has("app", "asked-to-stop", 1); called {
				t.Error("another pod had the hook made")
			}
			time.Sleep(5 * time.Second) // more than three periods of the liveness probe
			if n := p.Restarts("app"); n > 0 || !p.Ready() {
				t.Errorf("ready %t, %d restarts\n%s", p.Ready(), n, p.Describe())
			}
			r.must(p.StartDelete(r.Context()))
			r.emitted(p, "app", "asked-to-stop", 1)
			r.deleted(p)
			r.kept(p)
		})
	}
}

// plainCall calls a port and path of a pod from outside the mesh.
func plainCall(r *run, p *world.Pod, at string) (string, error) {
	status, _ := p.Status()
	return w.Kubectl(r.Context(), "", "exec", "--namespace=centre", "deployment/config", "--", "/app", "work", "--call=http://"+status.PodIP+at)
}

// In a namespace that enforces the Pod Security level "restricted", no container may install capture. A pod with
// capture is refused with the reason, and a pod that requests only ordering is accepted.
func TestRestrictedNamespace(t *testing.T) {
	// The namespace is removed at the end of the test, because "outrider check" fails while it exists.
	if err := w.Namespace(t.Context(), "locked", map[string]string{"istio-injection": "enabled", "pod-security.kubernetes.io/enforce": "restricted"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Client.CoreV1().Namespaces().Delete(context.Background(), "locked", metav1.DeleteOptions{}) })
	t.Run("refused", func(t *testing.T) {
		r := newRun(t)
		_, err := w.Create(r.Context(), awesome("locked", "locked-refused", restricted, annotated(contract.Init, contract.InitContained)))
		if err == nil || !strings.Contains(err.Error(), "pod-security.kubernetes.io/enforce") || !strings.Contains(err.Error(), "outrider.dev/capture") {
			t.Errorf("error %v, want one that names the label and the way out", err)
		}
	})
	t.Run("order alone", func(t *testing.T) {
		r := newRun(t)
		p := r.webhook(awesome("locked", "locked-order", restricted, annotated("outrider.dev/capture", "none")))
		r.ready(p)
		r.deleted(p)
		r.kept(p)
	})
}

// No call is lost when pods of the called service are stopped repeatedly under load.
func TestStopUnderLoad(t *testing.T) {
	r := newRun(t)
	client := r.webhook(awesome("shop", "stop-client", command("serve", "--call=http://server.shop/", "--every=2ms", "--stop=300ms")))
	r.ready(client)
	for range 3 {
		pods, err := w.Adopt(r.Context(), "shop", "app=server")
		r.must(err)
		one := pods[0]
		report.count(r.entry, func(e *entry) { e.pods++ })
		r.deleted(one)
		r.ordered(one)
		_, err = w.Kubectl(r.Context(), "", "rollout", "status", "deployment/server", "--namespace=shop", "--timeout="+world.Patience.String())
		r.must(err)
	}
	r.deleted(client)
	r.kept(client)
}

// A pod starts in a network that drops the pod's packets until its IP is in the API, although with some mechanisms
// the IP is in the API only after the proxy is ready.
func TestNoDeadlockOverThePodIP(t *testing.T) {
	for _, m := range []startup.Mechanism{startup.Gate, startup.Native, startup.Hold} {
		t.Run(string(m), func(t *testing.T) {
			nightly(t, m != startup.Native)
			if w.ByNode && m != startup.Gate {
				t.Skip("a hook of the pod's first container: the kubelet publishes the IP only once it has returned. Without the node an init container has ended before")
			}
			r := newRun(t)
			p := r.webhook(awesome("shop", "strict-network-"+string(m), start(m)))
			stop := strictNetwork(r, p)
			defer stop()
			r.ready(p)
			at, _ := p.Addressed()
			var ready time.Time
			for _, e := range p.Timeline() {
				if e.Container == proxy && e.What == startup.IsHealthy {
					ready = p.Time(e)
				}
			}
			report.count(r.entry, func(e *entry) {
				e.remark = fmt.Sprintf(" (proxy ready %.1f s after the pod's IP was published)", ready.Sub(at).Seconds())
			})
			r.deleted(p)
			r.kept(p)
		})
	}
}

// strictNetwork drops the packets that a pod sends, until its IP is in the API or stop is called.
func strictNetwork(r *run, p *world.Pod) (stop func()) {
	table := "strict_" + strings.ReplaceAll(p.Name, "-", "_")
	nft := func(text string) error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	}
	var ip netip.Addr
	r.until(p, "a sandbox", func() bool { ip = p.SandboxAddress(); return ip.IsValid() })
	r.must(nft(fmt.Sprintf("table ip %s { chain c { type filter hook prerouting priority -400; ip saddr %s drop; }; }", table, ip)))
	gone := func() { _ = nft("delete table ip " + table) }
	go func() {
		if p.Until(r.Context(), "addressed", func() bool { _, ok := p.Addressed(); return ok }) == nil {
			gone()
		}
	}()
	return gone
}

// A restart of both replicas of outriderd does not affect running pods, and pods that start meanwhile wait for a
// replica.
func TestTheControlPlaneRestarts(t *testing.T) {
	r := alone(t)
	before := r.webhook(awesome("shop", "control-before"))
	r.ready(before)
	r.restartOutriderd()
	var after *world.Pod
	r.must(w.Until(r.Context(), "the API server finds the new outriderd", func() bool {
		made, err := w.Create(r.Context(), awesome("shop", "control-after")) // repeat this, as a controller would do
		if err == nil {
			after = r.keep(made)
		}
		return err == nil
	}))
	r.ready(after)
	for _, p := range []*world.Pod{before, after} {
		r.deleted(p)
		r.kept(p)
	}
}

// restartOutriderd kills all pods of the control plane at once, and waits until they are replaced.
func (r *run) restartOutriderd() {
	r.Helper()
	r.killOutriderd(func(*world.Pod) bool { return true })
}

// killOutriderd kills the selected pods of the control plane, and waits until they are replaced.
func (r *run) killOutriderd(which func(*world.Pod) bool) {
	r.Helper()
	old, none, dead := r.outriderd(), int64(0), map[string]bool{}
	for _, p := range old {
		if which(p) {
			dead[p.UID] = true
			r.must(w.Client.CoreV1().Pods(p.Namespace).Delete(r.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
		}
	}
	if len(dead) == 0 {
		r.Fatalf("none of %d pods of outriderd is meant", len(old))
	}
	r.must(w.Until(r.Context(), "other pods of outriderd that are ready", func() bool {
		now := r.outriderd()
		return len(now) == len(old) && !slices.ContainsFunc(now, func(p *world.Pod) bool { return dead[p.UID] || !p.Ready() })
	}))
}

// outriderd returns the pods of the control plane that are not being deleted.
func (r *run) outriderd() []*world.Pod {
	r.Helper()
	pods, err := w.Adopt(r.Context(), "outrider-system", "app=outriderd")
	r.must(err)
	return slices.DeleteFunc(pods, func(p *world.Pod) bool { return p.Spec().DeletionTimestamp != nil })
}
