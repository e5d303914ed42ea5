package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/podupgrade"
	"outrider.dev/test/e2e/world"
)

// upgradePods runs "outrider upgrade pods", and returns its standard output and its standard error.
func (r *run) upgradePods(args ...string) (list, steps string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), filepath.Join(w.Root, "bin", "outrider"), append([]string{"upgrade", "pods", "--namespace=" + world.TierNamespace}, args...)...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		r.Fatalf("%v: %v\n%s%s", cmd.Args, e, &out, &err)
	}
	return out.String(), err.String()
}

// When the proxies of running pods are replaced under load by proxies with another image, no call is lost, and no
// application is restarted.
func TestPodsAreUpgradedUnderLoad(t *testing.T) {
	form := underLoad()
	for _, name := range form.upgrades {
		t.Run(name, func(t *testing.T) {
			r := alone(t)
			r.must(w.Tiers(r.Context(), strategies[name]))
			l := r.load(form.rate)
			pods := r.allReady()
			before := restarts(pods)
			next := world.ProxyImage + "-next"
			r.must(w.Tag(r.Context(), world.ProxyImage, next))

			// By default pods are upgraded to the proxy that a new pod would get. In this test an annotation of the pods
			// names the image.
			due := r.due()
			if len(due) != 0 {
				t.Errorf("%d pods are due before: %v", len(due), due)
			}
			_, err := w.Kubectl(r.Context(), "", "annotate", "pods", "--namespace="+world.TierNamespace, "--selector=part=tier", "sidecar.istio.io/proxyImage="+next)
			r.must(err)
			if due = r.due(); len(due) != len(pods) {
				t.Errorf("%d pods are due, want %d: %v", len(due), len(pods), due)
			}
			_, steps := r.upgradePods(fmt.Sprintf("--max-unavailable=%d", form.unavailable))
			for line := range strings.Lines(steps) {
				l.note("%s", strings.TrimSpace(line))
			}
			if due = r.due(); len(due) != 0 {
				t.Errorf("%d pods are due after: %v", len(due), due)
			}
			l.settle(5)
			for name, n := range restarts(r.allReady()) { // any order: each container is judged alone
				if n != before[name] {
					t.Errorf("%s was restarted: %d times, and %d before", name, n, before[name])
				}
			}
			l.end()
		})
	}
}

// restarts returns the restart counts of all containers except the proxies, by pod and container.
func restarts(pods []*world.Pod) map[string]int {
	out := map[string]int{}
	for _, p := range pods {
		for _, c := range p.Containers() {
			if c.Name != contract.ProxyContainer {
				out[p.Name+"/"+c.Name] = int(c.RestartCount)
			}
		}
	}
	return out
}

// due lists the pods whose proxy differs from that of a new pod.
func (r *run) due() (out []podupgrade.Candidate) {
	r.Helper()
	list, _ := r.upgradePods("--selector=part=tier", "--dry-run", "--output=json")
	var all []podupgrade.Candidate
	r.must(json.Unmarshal([]byte(list), &all))
	for _, c := range all {
		if c.State == podupgrade.NeedsNewPod {
			r.Errorf("%s: %s", c, c.Reason)
		}
		if c.State == podupgrade.Outdated {
			out = append(out, c)
		}
	}
	return out
}
