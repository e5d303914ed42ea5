package inject

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/startup"
)

// It is only guessed for which container a command waits. So a guess never causes a refusal, whichever container
// waits and whatever other orderings the pod has.
func TestGuessesRefuseNothing(t *testing.T) {
	const ready = "localhost:15021/healthz/ready"
	commands := map[string]string{
		"a sleep":              "sleep 5; run",
		"a loop for the proxy": "until curl -fs " + ready + "; do sleep 1; done; run",
		"a loop that gives up": "for i in 1 2 3; do curl -fs " + ready + " && break; sleep 1; done; run",
		"a loop for the app":   "until nc -z localhost 8080; do sleep 1; done; run",
		"a known waiter":       "pilot-agent wait && run",
	}
	orders := map[string]string{
		"nothing":           ``,
		"the app":           `outrider.dev/depends-on: "app: {outrider-proxy: healthy}"`,
		"a sidecar":         `outrider.dev/depends-on: "logs: {outrider-proxy: healthy}"`,
		"after an init":     `outrider.dev/depends-on: "logs: {wait: completed}"`,
		"another container": `outrider.dev/depends-on: "web: {app: started}"`,
		"off":               `outrider.dev/start: "off"`,
		"hold":              `outrider.dev/start: hold`,
		"no sidecar":        `sidecar.istio.io/nativeSidecar: "false"`,
		"a sidecar proxy":   `sidecar.istio.io/nativeSidecar: "true"`,
	}
	for what, command := range commands {
		for order, annotation := range orders {
			for _, policy := range []string{"Always", "OnFailure"} {
				for _, on := range []startup.Kubernetes{28, 34} {
					if on == 28 && strings.Contains(annotation, "logs: {outrider-proxy") {
						continue // no mechanism can keep the edge on that version
					}
					pod := podOf(t, `metadata: {name: p, annotations: {`+annotation+`}}
spec:
  restartPolicy: `+policy+`
  initContainers:
  - {name: wait, image: i, command: [sh, -c, "`+command+`"]}
  - {name: logs, image: i, restartPolicy: Always, command: [sh, -c, "`+command+`"], readinessProbe: {httpGet: {port: 15020, path: /app-health/logs/readyz}}}
  containers:
  - {name: app, image: i, command: [sh, -c, "`+command+`"], ports: [{containerPort: 8080}]}
  - {name: web, image: i, command: [web]}
`)
					if r, err := Pod(pod, Namespace{}, Options{Kubernetes: on}); err != nil || !r.Injected {
						t.Errorf("%s, order of %s, restartPolicy %s, Kubernetes 1.%d: injected %t, %v", what, order, policy, on, r.Injected, err)
					}
				}
			}
		}
	}
}

// A grace period that is too long for a duration becomes the longest for the gate and for the agent.
func TestEndlessGracePeriods(t *testing.T) {
	for _, seconds := range []int64{9999999999, math.MaxInt64} {
		pod := podOf(t, fmt.Sprintf("spec: {terminationGracePeriodSeconds: %d, containers: [{name: app, image: a, command: [/app]}]}", seconds))
		r, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true, Kubernetes: 34})
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(r.Pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"- --stop-grace\n    - 2147483647s\n", "name: OUTRIDER_GRACE\n      value: 2147483647s\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("grace period of %d s: want %q in\n%s", seconds, want, text)
			}
		}
	}
}
