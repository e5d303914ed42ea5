package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/chart"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/previous"
)

// skew reports whether this run has two versions of Outrider in its cluster: "make e2e-skew". It begins with the old
// one, which TestMain installs.
func skew() bool { return os.Getenv("OUTRIDER_SKEW") == "1" }

// old is the release before this checkout.
var old world.Release

// abrupt reports whether the old control plane refuses pods while one of its replicas ends.
var abrupt bool

func useOld(b previous.Build) {
	old = world.Release{Command: b.Command("outrider"), Tag: previous.Tag, Lacks: b.Lacks()}
	abrupt = b.Abrupt()
}

// While an operator upgrades the control plane, the webhook, the node's plugins and the pods from the previous version
// to this one, and back, no call is lost, and each new pod is injected. The operator is free in the order of the last
// two, so pods of both versions are served by control planes of both, and the proxies of pods that one version injected
// are replaced by those of the other.
func TestTwoVersions(t *testing.T) {
	if !skew() {
		t.Skip("the previous version is not installed: make e2e-skew")
	}
	form, r := underLoad(), alone(t)
	r.must(w.Tiers(r.Context(), nil))
	s := &skewed{run: r, l: r.load(form.rate), admission: r.admissions()}
	defer s.print()

	s.step("old control plane, old pods", func() { s.versions(previous.Tag, "front", "middle", "back") })
	s.leave(abrupt, "outrider upgrade", func() { s.release(w.Head()) })
	s.step("the new webhook makes pods", func() {
		s.rollOut("middle")
		s.versions(previous.Tag, "front", "back")
		s.versions("dev", "middle")
	})
	s.commands("a new control plane with old and new pods")
	s.step("old pods get a new proxy", func() {
		s.upgradePods(w.Head())
		s.versions("dev", "front", "middle", "back")
	})
	s.leave(false, "helm rollback", func() {
		r.must(w.Helm(r.Context(), "rollback", "outrider", "1", "--namespace="+chart.Namespace, "--wait", "--timeout="+world.Patience.String()))
		s.plane(previous.Tag)
	})
	s.step("the old webhook makes pods", func() {
		s.rollOut("back")
		s.versions("dev", "front", "middle")
		s.versions(previous.Tag, "back")
	})
	s.commands("an old control plane with old and new pods")
	s.step("new pods get an old proxy", func() { // the pods of middle were injected by the new webhook
		s.upgradePods(w.Head())
		s.versions(previous.Tag, "front", "middle", "back")
	})
	s.leave(abrupt, "outrider upgrade during a roll-out", func() {
		s.kubectl("rollout", "restart", "--namespace="+world.TierNamespace, "deployment/front")
		s.release(w.Head())
		r.must(w.RolledOut(r.Context()))
	})
	s.step("the new webhook makes all pods", func() {
		r.must(w.RollOut(r.Context()))
		s.versions("dev", "front", "middle", "back")
	})
	s.leave(false, "the old outrider upgrade", func() { s.release(old) })
	s.step("a new root of the old control plane", s.rotate)
	s.step("the old command replaces proxies", func() {
		s.upgradePods(old)
		s.versions(previous.Tag, "front", "middle", "back")
	})
	s.l.end()
	s.stop()
}

// skewed is a run with two versions.
type skewed struct {
	*run
	l *loading
	*admission
	rows []row
}

// A row is the result of a step.
type row struct {
	name                               string
	took                               time.Duration
	calls, lost                        int
	pods, injected, refused, uncovered int
}

// step runs a step under load, and counts what happened during it and the calls of five seconds after it.
func (s *skewed) step(name string, do func()) {
	s.Helper()
	s.leave(false, name, do)
}

// leave runs a step in which replicas of the control plane end. If they are abrupt, pods may be refused meanwhile.
func (s *skewed) leave(abrupt bool, name string, do func()) {
	s.Helper()
	fmt.Fprintln(os.Stderr, "step:", name)
	began, before := time.Now(), s.sum()
	do()
	s.allReady()
	s.l.settle(5)
	after := s.sum()
	after.name, after.took = name, time.Since(began)
	after.calls -= before.calls
	after.pods -= before.pods
	after.lost -= before.lost
	after.injected -= before.injected
	after.refused -= before.refused
	after.uncovered -= before.uncovered
	s.rows = append(s.rows, after)
	s.l.note("%s: %d calls, %d lost; %d pods admitted, %d refused, %d without a proxy", name, after.calls, after.lost, after.injected, after.refused, after.uncovered)
	if after.lost > 0 || after.refused > 0 && !abrupt || after.uncovered > 0 {
		s.Errorf("%s: %d calls were lost, %d pods refused, %d pods not injected; the last refusal: %v", name, after.lost, after.refused, after.uncovered, s.last.Load())
	}
}

func (s *skewed) sum() (out row) {
	for _, t := range s.l.tallies() {
		out.calls += t.Answered + t.Failed
		out.lost += t.Failed
	}
	out.injected, out.refused, out.uncovered = int(s.admission.injected.Load()), int(s.admission.refused.Load()), int(s.admission.uncovered.Load())
	out.pods = s.made()
	return out
}

// made returns the number of proxies that have been started in pods of the tiers.
func (s *skewed) made() (n int) {
	for _, p := range w.In(world.TierNamespace) {
		if p.Spec().Labels["part"] == "tier" {
			n += 1 + p.Restarts(proxy)
		}
	}
	return n
}

func (s *skewed) print() {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "seconds\tnew proxies\tcalls\tlost\tadmitted\trefused\twithout proxy\t  step")
	for _, x := range s.rows {
		fmt.Fprintf(t, "%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", x.took.Seconds(), x.pods, x.calls, x.lost, x.injected, x.refused, x.uncovered, x.name)
	}
	t.Flush()
	s.Logf("steps:\n%s", &text)
}

// release installs a release by its own command.
func (s *skewed) release(release world.Release) {
	s.Helper()
	s.must(w.Release(s.Context(), release, "upgrade", underLoad().replicas, underLoad().firstUse))
	s.plane(release.Tag)
}

// plane waits until all pods of the control plane and of the node's plugins have images with a tag.
func (s *skewed) plane(tag string) {
	s.Helper()
	s.must(w.Until(s.Context(), "the installation has the tag "+tag, func() bool {
		list, err := w.Client.CoreV1().Pods(chart.Namespace).List(s.Context(), metav1.ListOptions{})
		s.must(err)
		for _, p := range list.Items {
			if image := p.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+tag) {
				return false
			}
		}
		return len(list.Items) >= underLoad().replicas
	}))
}

func (s *skewed) rollOut(tier string) {
	s.Helper()
	s.kubectl("rollout", "restart", "--namespace="+world.TierNamespace, "deployment/"+tier)
	s.must(w.RolledOut(s.Context()))
}

func (s *skewed) upgradePods(release world.Release) {
	s.Helper()
	before := restarts(s.allReady())
	text, err := release.Run(s.Context(), "upgrade", "pods", "--namespace="+world.TierNamespace, "--selector=part=tier", "--max-unavailable=1")
	s.must(err)
	s.l.note("%s", text)
	for name, n := range restarts(s.allReady()) { // any order: each container is judged alone
		if n != before[name] {
			s.Errorf("%s was restarted: %d times, and %d before", name, n, before[name])
		}
	}
}

// versions fails the case if the proxies of these tiers run other images than those with a tag.
func (s *skewed) versions(tag string, tiers ...string) {
	s.Helper()
	list, err := w.Client.CoreV1().Pods(world.TierNamespace).List(s.Context(), metav1.ListOptions{LabelSelector: "part=tier"})
	s.must(err)
	seen := 0
	for _, p := range list.Items {
		if !slices.Contains(tiers, p.Labels["app"]) {
			continue
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if c.Name == proxy {
				seen++
				if !strings.HasSuffix(c.Image, ":"+tag) {
					s.Errorf("the proxy of %s has the image %s, want the tag %s", p.Name, c.Image, tag)
				}
			}
		}
	}
	if seen < 2*len(tiers) {
		s.Errorf("%d proxies of %v run, want %d", seen, tiers, 2*len(tiers))
	}
}

// rotate replaces the root of the authority, by the command of this checkout, and waits until the next one signs.
func (s *skewed) rotate() {
	s.Helper()
	root := s.signingRoot()
	s.outrider(s.l, "rotate")
	s.must(w.Until(s.Context(), "the next root signs", func() bool { return s.signingRoot() != root }))
}

// commands runs the commands of this checkout that look at an installation and its pods.
func (s *skewed) commands(what string) {
	s.Helper()
	pod := w.RunningTiers()[0].Name
	for _, args := range [][]string{
		{"version"}, {"check"}, {"check", "--proxy", "--namespace=" + world.TierNamespace}, {"check", "--pre"},
		{"proxy-status"}, {"proxy-status", "-o", "json"}, {"proxy-config", pod, "all", "-n", world.TierNamespace},
		{"describe", "pod", pod, "-n", world.TierNamespace}, {"diagnose", pod, "-n", world.TierNamespace},
		{"upgrade", "pods", "--dry-run", "--namespace=" + world.TierNamespace},
	} {
		text, err := w.Outrider(s.Context(), args...)
		if err != nil {
			s.Errorf("with %s: %v", what, err)
		}
		s.l.note("with %s: outrider %s\n%s", what, strings.Join(args, " "), text)
	}
}

// An admission counts what the webhook does with pods that are created again and again, as a dry run.
type admission struct {
	injected, refused, uncovered atomic.Int64
	last                         atomic.Value // of refusals
	stop                         func()
}

// admissions begins to create pods, until the case ends.
func (r *run) admissions() *admission {
	a := &admission{}
	ctx, cancel := context.WithCancel(r.Context())
	var done sync.WaitGroup
	a.stop = func() { cancel(); done.Wait() }
	r.Cleanup(a.stop)
	done.Go(func() {
		for ctx.Err() == nil {
			made, err := w.Client.CoreV1().Pods(world.TierNamespace).Create(ctx, awesome(world.TierNamespace, "admitted"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case ctx.Err() != nil:
			case err != nil:
				a.refused.Add(1)
				a.last.Store(err.Error())
			case made.Annotations[contract.Status] == "":
				a.uncovered.Add(1)
			default:
				a.injected.Add(1)
			}
			select {
			case <-time.After(100 * time.Millisecond): // the node has other work, too
			case <-ctx.Done():
			}
		}
	})
	return a
}
