package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/chart"
	"outrider.dev/test/e2e/world"
)

// No call between services is lost, and no container of the services is restarted, while operators change the
// control plane.
func TestControlPlaneUnderLoad(t *testing.T) {
	nightly(t, true)
	form := underLoad()
	r := alone(t)
	r.must(w.Tiers(r.Context(), nil))
	l := r.load(form.rate)
	before := restarts(r.allReady())
	root := r.signingRoot()
	r.outrider(l, "rotate")

	victim := r.outriderd()[0].UID
	r.killOutriderd(func(p *world.Pod) bool { return p.UID == victim })
	l.note("a replica was killed, another is ready")
	l.settle(5)

	r.kubectl("rollout", "restart", "deployment/outriderd", "--namespace="+chart.Namespace)
	r.kubectl("rollout", "status", "deployment/outriderd", "--namespace="+chart.Namespace, "--timeout="+world.Patience.String())
	l.note("the control plane was rolled out")
	l.settle(5)

	r.must(w.Install(r.Context(), form.replicas, form.firstUse, "pilot.podAnnotations.upgraded=yes"))
	l.note("the chart was upgraded")
	l.settle(5)

	r.loseTheHolder(l)

	r.without(l, form.away)

	r.must(w.Until(r.Context(), "the next root signs", func() bool { return r.signingRoot() != root }))
	l.note("the next root signs")
	for name, n := range restarts(r.allReady()) { // any order: each container is checked alone
		if n != before[name] {
			t.Errorf("%s was restarted: %d times, and %d before", name, n, before[name])
		}
	}
	// New pods have certificates of the next root, and exchange calls with pods that have certificates of the old root.
	r.must(w.RollOut(r.Context()))
	l.note("pods with certificates of the next root are ready")
	l.settle(5)
	l.end()
}

// No call from outside is lost while the called services leave the mesh and Outrider is removed from the cluster.
func TestUninstallUnderLoad(t *testing.T) {
	nightly(t, true)
	form := underLoad()
	r := alone(t)
	r.must(w.Tiers(r.Context(), nil))
	t.Cleanup(func() { // install again for the other cases, with Helm's own command
		ctx, cancel := context.WithTimeout(context.Background(), 2*world.Patience)
		defer cancel()
		if err := errors.Join(w.InstallByHelm(ctx, form.replicas, form.firstUse), w.Return(ctx)); err != nil {
			t.Error(err)
		}
	})
	l := r.load(form.rate, func(p *corev1.Pod) { p.Labels["sidecar.istio.io/inject"] = "false" })
	if _, err := w.Outrider(r.Context(), "uninstall", "--purge"); err == nil {
		t.Fatal("it is removed below pods that need it")
	}
	r.outrider(l, "uninject", "--all-namespaces")
	l.settle(5)
	r.outrider(l, "uninstall", "--purge")
	if w.ByNode {
		r.nodeAsBefore()
	}
	l.settle(5)
	for _, p := range r.allReady() {
		for _, c := range p.Containers() {
			if c.Name == contract.ProxyContainer || c.RestartCount != 0 {
				t.Errorf("%s: container %s, restarted %d times", p.Name, c.Name, c.RestartCount)
			}
		}
	}
	l.end()
}

// without stops both replicas of outriderd for this many seconds. Meanwhile no call between the running services
// may fail, and a new pod must be refused with the reason.
func (r *run) without(l *loading, seconds int) {
	r.Helper()
	r.kubectl("scale", "deployment/outriderd", "--namespace="+chart.Namespace, "--replicas=0")
	r.must(w.Until(r.Context(), "both replicas are gone", func() bool { return len(r.outriderd()) == 0 }))
	l.settle(seconds)
	if made, err := w.Create(r.Context(), awesome("shop", "refused")); err == nil {
		r.keep(made)
		r.Error("a pod was made while the control plane was away")
	} else if !strings.Contains(err.Error(), "failed calling webhook") {
		r.Errorf("a pod is refused with: %v", err)
	}
	r.kubectl("scale", "deployment/outriderd", "--namespace="+chart.Namespace, "--replicas=2")
	r.kubectl("rollout", "status", "deployment/outriderd", "--namespace="+chart.Namespace, "--timeout="+world.Patience.String())
	l.note("the control plane was away for %d seconds of calls", seconds)
	l.settle(5)
}

// loseTheHolder drops all packets of the replica that holds the Lease, as if its node had died, so that not even
// the end of a connection is seen. Another replica must take the Lease, and no call may fail then, or after the
// first replica is reachable again.
func (r *run) loseTheHolder(l *loading) {
	r.Helper()
	holder := func() string {
		lease, err := w.Client.CoordinationV1().Leases(chart.Namespace).Get(r.Context(), contract.RouteStatusLease, metav1.GetOptions{})
		r.must(err)
		return *lease.Spec.HolderIdentity
	}
	old := holder()
	at := slices.IndexFunc(r.outriderd(), func(p *world.Pod) bool { return strings.HasPrefix(old, p.Name) })
	if at < 0 {
		r.Fatalf("the Lease is held by %q, which is none of %v", old, r.outriderd())
	}
	back, err := r.outriderd()[at].CutOff()
	r.must(err)
	r.must(w.Until(r.Context(), "another replica holds the Lease", func() bool { return holder() != old && holder() != "" }))
	l.note("the node of %s was lost, %s holds the Lease", old, holder())
	l.settle(5)
	r.must(back())
	r.kubectl("rollout", "status", "deployment/outriderd", "--namespace="+chart.Namespace, "--timeout="+world.Patience.String())
	l.note("it is back")
	l.settle(5)
	r.outrider(l, "check")
	r.outrider(l, "check", "--proxy", "--namespace="+world.TierNamespace)
}

// signingRoot returns the root with which the authority signs.
func (r *run) signingRoot() string {
	r.Helper()
	s, err := w.Client.CoreV1().Secrets(chart.Namespace).Get(r.Context(), contract.AuthoritySecret, metav1.GetOptions{})
	r.must(err)
	return string(s.Data["ca-cert.pem"])
}

// outrider runs the command outrider, and adds its output to the notes of l.
func (r *run) outrider(l *loading, args ...string) {
	r.Helper()
	text, err := w.Outrider(r.Context(), args...)
	r.must(err)
	l.note("outrider %s\n%s", strings.Join(args, " "), text)
}

func (r *run) kubectl(args ...string) {
	r.Helper()
	_, err := w.Kubectl(r.Context(), "", args...)
	r.must(err)
}
