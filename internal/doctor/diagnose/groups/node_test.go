package groups

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/evidence/gather"
)

// failed is a pod on a node whose only container ended with a failure, and waits.
func failed(name, container, node string) string {
	return fmt.Sprintf(`- {apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: kube-system}, spec: {nodeName: %s, containers: [{name: %s, image: x}]}, status: {phase: Running, containerStatuses: [{name: %s, ready: false, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T10:00:01Z", finishedAt: "2026-03-02T10:00:02Z"}}}]}}
`, name, node, container, container)
}

// A pod whose calls fail on a node where a part of the network does not run suffers from that, and no other pod does.
func TestPartsOfTheNode(t *testing.T) {
	refused := func(to string) string { return "dial tcp " + to + ": connect: connection refused\n" }
	right, tried := 0, 0
	for name, c := range map[string]struct {
		part, partNode, app, log string // log: of the application; empty: none
		follows                  bool
	}{
		"kube-proxy, the API server": {"kube-proxy", "n1", "app", refused("10.43.0.1:443"), true},
		"kube-proxy, a Service":      {"kube-proxy", "n1", "app", refused("10.43.9.9:5432"), true},
		"kube-proxy, a name":         {"kube-proxy", "n1", "app", "dial tcp: lookup db.shop on 10.43.0.10:53: read udp 10.1.0.7:51922->10.43.0.10:53: i/o timeout\n", true},
		"Cilium, a Service":          {"cilium-agent", "n1", "app", refused("10.43.9.9:5432"), true},
		"Calico, no answer":          {"calico-node", "n1", "app", "dial tcp 10.43.9.9:5432: i/o timeout\n", true},
		"kube-proxy, and no log":     {"kube-proxy", "n1", "app", "", true},
		"another node":               {"kube-proxy", "n2", "app", refused("10.43.9.9:5432"), false},
		"no part of the network":     {"node-exporter", "n1", "app", refused("10.43.9.9:5432"), false},
		"a failure of its own":       {"kube-proxy", "n1", "app", "panic: no licence\n", false},
		"a call to the pod itself":   {"kube-proxy", "n1", "app", refused("127.0.0.1:5432"), false},
		"a public address":           {"kube-proxy", "n1", "app", refused("198.51.100.7:443"), false},
		"a name that only sounds so": {"kube-proxy-metrics", "n1", "app", refused("10.43.9.9:5432"), false},
	} {
		t.Run(name, func(t *testing.T) {
			tried++
			folder := t.TempDir()
			files := map[string]string{"pods.yaml": "apiVersion: v1\nkind: List\nitems:\n" + failed("part-1", c.part, c.partNode) + failed("other-1", "app", "n1"), c.part + ".previous.log": "Error: unknown flag --x\n"}
			if c.log != "" {
				files["app.previous.log"] = c.log
			}
			for file, text := range files { // in any order: each is a file
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set, err := gather.Read(t.Context(), gather.Options{}, folder)
			if err != nil {
				t.Fatal(err)
			}
			reports, err := Diagnose(t.Context(), set, diagnose.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reports {
				if follows := r.SameAs == "kube-system/part-1"; r.Pod == "kube-system/other-1" && (follows != c.follows || strings.Contains(r.Sentence, "of its node does not run") != c.follows) {
					t.Errorf("same as %q: %s", r.SameAs, r.Sentence)
					return
				}
			}
			right++
		})
	}
	t.Logf("%d of %d are right", right, tried)
}
