package e2e

import (
	"testing"
	"time"

	"outrider.dev/startup"
	"outrider.dev/test/e2e/world"
)

// When processes of a pod are killed, its containers restart in the declared order.
func TestFaults(t *testing.T) {
	gated := start(startup.Gate)
	for name, c := range map[string]struct {
		changes []change
		happens func(*run, *world.Pod)
		lossy   bool // calls in flight may fail, but no connection may be refused
		nightly bool
	}{
		"the application dies": {changes: []change{gated}, happens: func(r *run, p *world.Pod) {
			r.must(p.KillBelow("app", "app"))
			r.emitted(p, "app", "started", 2)
		}},
		"the gate dies with its application": {nightly: true, changes: []change{gated}, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill("app"))
			r.emitted(p, "app", "started", 2)
		}},
		"envoy dies three times": {changes: []change{gated}, lossy: true, happens: func(r *run, p *world.Pod) {
			for range 3 {
				n := healthy(p)
				r.must(p.KillBelow(proxy, "envoy"))
				r.until(p, "the proxy is ready again", func() bool { return healthy(p) > n })
			}
		}},
		"the agent dies": {changes: []change{gated}, lossy: true, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill(proxy))
			r.until(p, "the proxy is back", func() bool { return p.Restarts(proxy) == 1 })
		}},
		"the proxy dies, and then the application": {nightly: true, changes: []change{gated}, lossy: true, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill(proxy))
			r.must(p.Kill("app"))
			r.emitted(p, "app", "started", 2)
		}},
		"a native proxy dies": {nightly: true, changes: []change{start(startup.Native)}, lossy: true, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill(proxy))
			r.until(p, "the proxy is back", func() bool { return p.Restarts(proxy) == 1 })
		}},
		"out of memory": {
			nightly: true,
			changes: []change{gated, memory("96Mi"), command("serve", "--config=http://config.centre/", "--eat=200", "--after=2s")},
			happens: func(r *run, p *world.Pod) { r.emitted(p, "app", "started", 2) },
		},
		"the sandbox is lost": {changes: []change{gated}, lossy: true, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill(""))
			r.emitted(p, "app", "started", 2)
		}},
		"the sandbox of a native sidecar is lost": {nightly: true, changes: []change{start(startup.Native)}, lossy: true, happens: func(r *run, p *world.Pod) {
			r.must(p.Kill(""))
			r.emitted(p, "app", "started", 2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, c.nightly)
			r := newRun(t)
			p := r.webhook(awesome("shop", dashed("fault", name), c.changes...))
			r.ready(p)
			time.Sleep(500 * time.Millisecond) // so that the application makes calls before the next kill
			c.happens(r, p)
			if name != "out of memory" {
				r.ready(p)
				r.emitted(p, "app", "called", 1)
			}
			r.deleted(p)
			r.ordered(p)
			failed, refused := r.entry.tally(p)
			if refused > 0 || failed > 0 && !c.lossy {
				t.Errorf("%d calls failed, %d were refused\n%s", failed, refused, p.Describe())
			}
		})
	}
}

// healthy returns the number of times that the proxy has become ready.
func healthy(p *world.Pod) (n int) {
	for _, e := range p.Timeline() {
		if e.Container == proxy && e.What == startup.IsHealthy {
			n++
		}
	}
	return n
}
