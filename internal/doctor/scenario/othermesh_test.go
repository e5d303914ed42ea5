package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
)

// besideMesh is a pod with Istio's proxy, to which injection adds order and parking.
const besideMesh = `apiVersion: v1
kind: Pod
metadata:
  name: shop
  annotations:
    outrider.dev/proxy: none
    a: b%s
spec:
  terminationGracePeriodSeconds: %d
  initContainers:
  - {name: istio-init, image: "istio/proxyv2:1.26.2", args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337"]}
  containers:
  - name: istio-proxy
    image: istio/proxyv2:1.26.2
    args: [proxy, sidecar]
    readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}%s
  - {name: app, image: shop/app:1%s}
`

// plan, simulate and verify agree about the stop beside another mesh's proxy: with gates and with a preStop hook that
// waits for open sockets, and when the agent gives up.
func TestStopsBesideAnotherMesh(t *testing.T) {
	const (
		hold    = "\n    lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}"
		command = ", command: [/app]"
	)
	for name, tt := range map[string]struct {
		annotations string
		grace       int
		lifecycle   string
		app         string
		stops       string // how long the application takes

		edge  startup.Mechanism // of "app after istio-proxy"; empty: there is none
		plan  bool              // plan keeps the order of the stop
		holds bool              // verify proves it, if the application stops in time
		kept  bool              // it is kept in the simulation
		note  string            // of plan
	}{
		"gate":                           {"", 30, "", command, "8s", startup.Gate, true, true, true, ""},
		"gate, application takes longer": {"", 15, "", command, "20s", startup.Gate, true, true, false, ""},
		"gate, 4 s":                      {"", 4, "", command, "1s", startup.Gate, true, true, true, ""},
		"gate, 4 s are too short":        {"", 4, "", command, "8s", startup.Gate, true, true, false, ""},
		"gate, 2 s":                      {"", 2, "", command, "1500ms", startup.Gate, false, true, false, ""},
		"gate, none":                     {"", 0, "", command, "1s", startup.Gate, false, false, false, ""},
		"hold":                           {"", 30, hold, "", "8s", startup.Hold, true, true, true, "gets SIGTERM when app has ended, as far as open sockets show, and after 28s"},
		"hold, application takes longer": {"", 15, hold, "", "20s", startup.Hold, true, true, false, "after 13s"},
		"hold, none":                     {"", 0, hold, "", "1s", startup.Hold, false, false, false, "after 0s at the latest: raise terminationGracePeriodSeconds"},
		"command in the image":           {"", 30, "", "", "8s", "", false, true, true, "gets SIGTERM when app has ended"},
		"parking alone":                  {"\n    outrider.dev/start: \"off\"", 30, "", command, "8s", "", false, true, true, "gets SIGTERM when app has ended"},
		"hold by annotation":             {"\n    outrider.dev/start: hold", 30, "", "", "8s", startup.Hold, true, true, true, "gets SIGTERM when app has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, _, err := podfile.Parse("pod.yaml", fmt.Appendf(nil, besideMesh, tt.annotations, tt.grace, tt.lifecycle, tt.app))
			if err != nil {
				t.Fatal(err)
			}
			o := objects[0]
			r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "default"}, inject.Options{Manual: true, Kubernetes: 34})
			if err != nil {
				t.Fatal(err)
			}
			o.Pod = *r.Pod
			report, err := plan.New(o, 34, false)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(report.Edges, func(e plan.Edge) bool { return e.From == "istio-proxy" && e.To == "app" })
			switch {
			case i < 0 && tt.edge != "":
				t.Errorf("plan has no edge, want one by %s", tt.edge)
			case i >= 0 && (report.Edges[i].By != tt.edge || report.Edges[i].Stop != tt.plan):
				t.Errorf("plan: by %s, keeps the stop: %t; want %s, %t", report.Edges[i].By, report.Edges[i].Stop, tt.edge, tt.plan)
			}
			if !strings.Contains(strings.Join(report.Notes, "\n"), tt.note) {
				t.Errorf("plan's notes are %q, want %q", report.Notes, tt.note)
			}
			s, err := NewSubject(o, 34)
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.Verify(context.Background(), Promises["stops"], verify.Bound{Faults: -1, Time: time.Hour}, func(string, verify.Progress) {})
			if err != nil || v.Holds != tt.holds {
				t.Errorf("verify: holds: %t, want %t; %v; %v", v.Holds, tt.holds, err, VerifyError([]Verification{v}))
			}
			if why := strings.Join(v.LeftOut(), "\n"); tt.holds && !strings.Contains(why, "a stop of app that takes longer") {
				t.Errorf("verify leaves out %q, and not a stop of app that takes longer", why)
			}
			b, err := ParseBehaviour("", "", []string{"app: calls istio-proxy every 100ms, stops after " + tt.stops, "istio-proxy: stops after 100ms", "deleted at 20s", "until 80s"})
			if err != nil {
				t.Fatal(err)
			}
			sim, err := s.Simulate(b)
			if err != nil {
				t.Fatal(err)
			}
			kept := !slices.ContainsFunc(sim.Outcome.Violations, func(v startup.Violation) bool { return v.How == startup.OutlivedDependency })
			if kept != tt.kept {
				t.Errorf("simulate: keeps the stop: %t, want %t; %v", kept, tt.kept, sim.Outcome.Violations)
			}
		})
	}
}
