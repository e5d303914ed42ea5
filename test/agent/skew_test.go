package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// versions are the programs of the version before this one, and of this one.
type versions map[string]harness.Binaries

// bothVersions returns the programs of two versions. Only the nightly run builds the older one.
func bothVersions(t *testing.T, w *harness.World) versions {
	t.Helper()
	if !tier.Nightly() {
		t.Skip("OUTRIDER_NIGHTLY=1 builds the previous version, and runs it with this one")
	}
	return versions{"new": w.Binaries, "old": harness.Previous(t)}
}

// inStep waits until both proxies have accepted what the control plane has for them. Only a proxy of the old version
// needs it: that one loses calls if its listeners change while it is replaced.
func inStep(t *testing.T, w *harness.World, client, server *harness.Agent) {
	t.Helper()
	process.Eventually(t, "both proxies are in step", func() bool {
		var all []debugapi.Proxy
		if json.Unmarshal([]byte(w.Proxies()), &all) != nil {
			return false
		}
		names := map[string]bool{}
		for _, p := range all {
			names[p.Name()] = !slices.ContainsFunc(p.Types, func(s debugapi.Subscription) bool { return s.Pending > 0 }) && len(p.Types) > 2
		}
		return names["client.shop"] && names["server.shop"]
	}, w.Plane(), client, server)
}

// The control plane changes from the old version to the new one and back, twice, under load. With each, the proxies of
// client and server are replaced by those of the other version, and back. No request fails; each proxy gets the first
// use of a new service from the control plane, with a certificate that this control plane has signed; and a gate of
// either version, as the pod has had it since its start, sees that the proxy is ready.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	both := bothVersions(t, w)
	w.Binaries = both["old"]
	client, server := pair(w, func(c, s *harness.Pod) { drains(time.Second, c, s) })
	const want = "server HTTP/1.1"
	url := "http://" + vip + "/"
	loads := twoLoads(client.Pod, url, want)
	services := 1
	for step, plane := range []string{"old", "new", "old", "new"} {
		if step > 0 {
			w.Binaries = both[plane]
			w.Plane().Kill()
			w.Serve() // the proxies, of the new version, are replaced while their listeners change
		}
		for _, agent := range []string{"old", "new"} {
			w.Binaries.Agent = both[agent].Agent
			server, client = replace(t, server), replace(t, client)
			if agent == "old" {
				inStep(t, w, client, server)
			}
			services++
			to := fmt.Sprint("10.96.1.", services)
			w.Service(fmt.Sprint("service-", services), to, "server", ports...)
			w.Known(services, 2)
			process.Retry(t, fresh(client.Pod, "http://"+to+"/", want), client, server)
			for _, gate := range []string{"new", "old"} {
				name := fmt.Sprint(plane, "-", agent, "-", gate, "-", step)
				w.Binaries.Agent = both[gate].Agent
				if status := client.Pod.GateOf(name, "--after", "outrider-proxy is healthy", "--", "true").Exit(); status != 0 {
					t.Errorf("%s: a gate ends with status %d", name, status)
				}
			}
		}
	}
	judgeAll(t, loads)
}

// Proxies of the old version could request the whole mesh, by themselves or by a flag of their control plane. A control
// plane of this version sends them what they use, and no request fails in the moment of the change.
func TestAFullPushBefore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ plane, env []string }{
		"by the control plane": {plane: []string{"--push=full"}},
		"by the proxy":         {env: []string{"OUTRIDER_PUSH=full"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t)
			both := bothVersions(t, w)
			w.Binaries = both["old"]
			client, server := pair(w, func(c, s *harness.Pod) { c.Env, s.Env = tt.env, tt.env }, tt.plane...)
			const want = "server HTTP/1.1"
			url := "http://" + vip + "/"
			loads := twoLoads(client.Pod, url, want)
			w.Binaries = both["new"]
			w.Plane().Kill()
			w.Serve()
			w.Service("other", "10.96.0.11", "server", ports...)
			w.Known(2, 2)
			process.Retry(t, fresh(client.Pod, "http://10.96.0.11/", want), client, server)
			judgeAll(t, loads)
		})
	}
}
