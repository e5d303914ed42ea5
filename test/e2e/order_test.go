package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
	"outrider.dev/test/e2e/world"
)

// With every ordering mechanism, injected by the command and by the webhook, the application's only request for its
// configuration succeeds, and so does its last call after SIGTERM.
func TestOrder(t *testing.T) {
	for name, c := range ways {
		for _, by := range []string{"inject", "webhook"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				nightly(t, c.often < (map[string]int{"webhook": 1, "inject": 2})[by])
				r := newRun(t)
				var p *world.Pod
				pod := awesome("shop", dashed("order", name)+"-"+by, c.changes...)
				if by == "inject" {
					pod.Namespace = "plain"
					p = r.cli(pod)
				} else {
					p = r.webhook(pod)
				}
				r.ready(p)
				r.emitted(p, "app", "called", 1)
				if n := p.Restarts("app"); n > 0 {
					t.Errorf("the application was started %d times again\n%s", n, p.Describe())
				}
				plan, err := p.Plan()
				r.must(err)
				if got := waitsBy(plan); got != c.by {
					t.Errorf("ordered by %q, want %q\n%s", got, c.by, plan)
				}
				r.deleted(p)
				r.kept(p)
			})
		}
	}
}

// ways are the ordering mechanisms, with the pods that use them.
var ways = map[string]struct {
	by      startup.Mechanism
	often   int // cases in every run: 2: command and webhook, 1: webhook, 0: none; the nightly run has all
	changes []change
}{
	"default":        {startup.Gate, 2, nil},
	"gate":           {startup.Gate, 0, []change{start(startup.Gate)}},
	"native":         {startup.Native, 2, []change{start(startup.Native)}},
	"native probe":   {startup.Native, 1, []change{start(startup.Native), annotated("outrider.dev/native-release", "probe")}},
	"hold":           {startup.Hold, 2, []change{start(startup.Hold)}},
	"init none":      {startup.Gate, 1, []change{annotated("outrider.dev/init", "none")}},
	"parking alone":  {"", 2, []change{annotated("outrider.dev/start", "off")}},
	"istio's wish":   {startup.Native, 0, []change{annotated("sidecar.istio.io/nativeSidecar", "true")}},
	"istio's hold":   {startup.Gate, 0, []change{annotated("proxy.istio.io/config", "holdApplicationUntilProxyStarts: true")}},
	"names by proxy": {startup.Gate, 1, []change{annotated("proxy.istio.io/config", `proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}`)}},
}

// waitsBy returns the mechanism by which the application waits for the proxy; "" if it does not wait.
func waitsBy(plan startup.Plan) startup.Mechanism {
	for _, e := range plan.Expand().Edges {
		if e.From == proxy && e.To == "app" {
			return e.By
		}
	}
	return ""
}

// The application waits if the proxy's image arrives later than its own. Without Outrider the application would win
// this race and fail.
func TestTheProxyIsLate(t *testing.T) {
	for name, c := range map[string]struct {
		flags   []string
		changes []change
		suffers bool
		nightly bool
	}{
		"no order, no parking": {changes: []change{annotated("outrider.dev/start", "off"), annotated("outrider.dev/park", "off")}, suffers: true},
		"parking alone":        {changes: []change{annotated("outrider.dev/start", "off")}, nightly: true},
		"gate":                 {changes: []change{start(startup.Gate)}},
		"native":               {changes: []change{start(startup.Native)}},
		"hold":                 {changes: []change{start(startup.Hold)}},
		"never restarted":      {changes: []change{restart(corev1.RestartPolicyNever)}, nightly: true},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, c.nightly)
			r := newRun(t)
			id := dashed("late", name)
			late := "test.outrider.dev/" + id + ":1"
			pod := awesome("plain", id, append(c.changes, annotated("sidecar.istio.io/proxyImage", late))...)
			p := r.cli(pod, "--set", "values.global.proxy_init.image="+world.ProxyImage)
			if c.suffers {
				r.emitted(p, "app", "gives-up", 1)
				r.until(p, "started again", func() bool { return p.Restarts("app") > 0 })
			} else {
				r.until(p, "the image is missed", func() bool { return missing(p, proxy) })
				time.Sleep(2 * time.Second) // long enough for the application to start if it does not wait
			}
			r.must(w.Tag(r.Context(), world.ProxyImage, late))
			r.ready(p)
			restarts := p.Restarts("app")
			r.deleted(p)
			r.judge(p)
			_, refused := r.entry.tally(p)
			report.count(r.entry, func(e *entry) { e.remark = fmt.Sprintf(" (restarts: %d)", restarts) })
			switch {
			case c.suffers && (refused == 0 || restarts == 0):
				t.Errorf("refused %d, restarts %d: the race did not happen, and nothing is shown by the others\n%s", refused, restarts, p.Describe())
			case !c.suffers && (refused > 0 || restarts > 0):
				t.Errorf("refused %d, restarts %d, want none\n%s", refused, restarts, p.Describe())
			}
		})
	}
}

// missing reports whether a container waits because its image is missing.
func missing(p *world.Pod, container string) bool {
	waits := stateOf(p, container).Waiting
	return waits != nil && strings.Contains(waits.Reason, "Image")
}

// Fifty pods that are started at the same time, and stopped while they work, start and stop in the declared order.
func TestFiftyAtOnce(t *testing.T) {
	const size = 50
	waves := underLoad().waves
	for _, m := range []startup.Mechanism{startup.Gate, startup.Native} {
		t.Run(string(m), func(t *testing.T) {
			nightly(t, true)
			r := alone(t)
			for wave := range waves {
				var pods []*world.Pod
				for i := range size {
					name := fmt.Sprintf("fifty-%s-%d-%d", m, wave, i)
					// The pods make few calls, because this is not a test under load. The grace period
					// is long, because a busy kubelet takes longer than the default of 30 s to stop
					// fifty pods, and then kills their containers in any order.
					changes := []change{start(m), grace(180), command("serve", "--config=http://config.centre/", "--call=http://server.shop/", "--every=250ms", "--stop=300ms")}
					if w.ByNode {
						changes = append(changes, noCommand)
					}
					pods = append(pods, r.webhook(awesome("shop", name, changes...)))
				}
				for _, p := range pods {
					r.ready(p)
				}
				ctx, cancel := context.WithTimeout(r.Context(), world.Patience)
				var all sync.WaitGroup
				for _, p := range pods {
					all.Go(func() {
						if err := p.Delete(ctx); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				cancel()
				for _, p := range pods {
					if n := p.Restarts("app"); n > 0 {
						t.Errorf("%s: %d restarts\n%s", p.Name, n, p.Describe())
					}
					r.kept(p)
					p.Remove(r.Context())
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// The delay of a liveness probe counts from the start of the command, not of the container. While the gate waits, the
// probe does not fail, and the kubelet starts no process in the container for it. Afterwards the kubelet restarts an
// application that hangs.
func TestLivenessWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		delay   int32
		changes []change
		execs   bool // the kubelet executes "outrider-agent started" until the gate opens
	}{
		"by the agent":               {},
		"by the agent, with a delay": {delay: 5},
		"by the copied agent":        {changes: []change{annotated("status.sidecar.istio.io/port", "0")}, execs: true},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, name != "by the agent")
			r := newRun(t)
			id := dashed("live", name)
			late := "test.outrider.dev/" + id + ":1"
			pod := awesome("plain", id, append(c.changes, start(startup.Gate), annotated("sidecar.istio.io/proxyImage", late))...)
			live := httpProbe("/ready", 8080)
			live.FailureThreshold, live.InitialDelaySeconds = 2, c.delay
			pod.Spec.Containers[0].LivenessProbe = live
			p := r.cli(pod, "--set", "values.global.proxy_init.image="+world.ProxyImage)
			r.until(p, "the image is missed", func() bool { return missing(p, proxy) })
			time.Sleep(4 * time.Second) // long enough for a wrong restart
			r.must(w.Tag(r.Context(), world.ProxyImage, late))
			r.ready(p)
			before := p.Execs("app")
			time.Sleep(4 * time.Second) // long enough for more probes
			if n := p.Execs("app"); n != before || (n > 0) != c.execs {
				t.Errorf("%d processes were started in the application's container until it was ready, and %d by now\n%s", before, n, p.Describe())
			}
			if n := p.Restarts("app"); n > 0 {
				t.Errorf("%d restarts\n%s", n, p.Describe())
			}
			pid, err := p.Below("app", "app")
			r.must(err)
			r.must(syscall.Kill(pid, syscall.SIGSTOP))
			r.until(p, "started again, since it hangs", func() bool { return p.Restarts("app") == 1 })
			r.ready(p)
			if n := p.Restarts("app"); n != 1 {
				t.Errorf("%d restarts, want 1\n%s", n, p.Describe())
			}
			r.deleted(p)
			r.judge(p)
		})
	}
}
