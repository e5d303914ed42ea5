package diagnose

import (
	"strings"
	"testing"
)

// A container that does nothing but wait, by its command, is found when it has waited for long.
func TestWaitsInVain(t *testing.T) {
	const (
		lookup = "until nslookup auth.id >/dev/null 2>&1; do echo still waiting; sleep 2; done"
		late   = `"2026-03-02T10:20:00Z"`
		early  = `"2026-03-02T10:00:40Z"`
		logged = "2026-03-02T10:19:59Z still waiting\n"
	)
	pod := func(script, seen, spec string) smallPod {
		return smallPod{
			spec: spec + `initContainers: [{name: wait, image: i, command: [sh, -c, "` + script + `"]}], `,
			status: `phase: Pending, conditions: [{type: Initialized, status: "False", lastTransitionTime: ` + seen + `}], ` +
				`initContainerStatuses: [{name: wait, restartCount: 0, ready: false, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}}]`,
			appIs: "state: {waiting: {reason: PodInitializing}}", sideIs: "state: {waiting: {reason: PodInitializing}}",
		}
	}
	withLog := func(p smallPod, text string) smallPod {
		p.files = map[string]string{"wait.log": text}
		return p
	}
	proxied := pod(lookup, late, "")
	proxied.name = "istio-proxy"
	for name, c := range map[string]struct {
		pod  smallPod
		want string
		says string
	}{
		"for a name":                          {pod(lookup, late, ""), "found name-not-resolved likely", `wait has waited for 19 min 58 s until "nslookup auth.id" succeeds`},
		"for a name, and says no more":        {withLog(pod(lookup, late, ""), logged), "found name-not-resolved likely", `"nslookup auth.id"`},
		"for a destination":                   {pod("while ! nc -z -w 2 auth 8443; do sleep 1; done", late, ""), "found dependency-down likely", `until "nc -z -w 2 auth 8443" succeeds`},
		"for a file":                          {pod("until [ -f /keys/ready ]; do sleep 1; done", late, ""), "found state-not-known likely", `it only waits until "[ -f /keys/ready ]" succeeds`},
		"for two":                             {pod("until nc auth 80; do sleep 1; done; until nc pay 80; do sleep 1; done", late, ""), "found state-not-known likely", `until "nc auth 80" succeeds, until "nc pay 80" succeeds`},
		"for its own pod":                     {pod("until nc localhost 80; do sleep 1; done", late, ""), "found state-not-known likely", "nc localhost 80"},
		"not for long":                        {pod(lookup, early, ""), "starting", `init container wait runs, until "nslookup auth.id" succeeds`},
		"and then works":                      {pod("until nc auth 80; do sleep 1; done; migrate up", late, ""), "found state-not-known likely", "!only waits"},
		"beside a proxy, which may keep it":   {proxied, "undecided init-needs-network possible", "wait does not complete"},
		"and its log has an address":          {withLog(pod("until nc auth 80; do sleep 1; done", late, ""), "2026-03-02T10:19:59Z nc: can't connect to remote host (10.1.2.3): Connection refused\n"), "found dependency-down certain", "auth (10.1.2.3:80)"},
		"and its log has no address":          {withLog(pod("until nc auth 80; do sleep 1; done", late, ""), "2026-03-02T10:19:59Z nc: timed out\n"), "found dependency-down likely", "auth:80"},
		"and its log has another address":     {withLog(pod("until nc auth 80; do sleep 1; done", late, ""), "2026-03-02T10:19:59Z dial tcp 10.1.2.3:443: connect: connection refused\n"), "found dependency-down certain", "!auth"},
		"and its log says how the call fails": {withLog(pod("until nc auth 80; do sleep 1; done", late, ""), "2026-03-02T10:19:59Z dial tcp 10.1.2.3:80: connect: connection refused\n"), "found dependency-down certain", "refused"},
	} {
		r := diagnoseFolder(t, folderOf(t, c.pod.texts()))
		got := string(r.Verdict)
		if len(r.Findings) > 0 {
			got += " " + string(r.Findings[0].Code) + " " + string(r.Findings[0].Confidence)
		}
		text, not := strings.CutPrefix(c.says, "!")
		if got != c.want || strings.Contains(r.Sentence, text) == not {
			t.Errorf("%s: %s: %s", name, got, r.Sentence)
		}
	}
}
