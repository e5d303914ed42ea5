package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"outrider.dev/test/cluster"
	"outrider.dev/test/process"
)

// workloads are created at once; each of [workloadTests] is about one of them.
const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: ` + cluster.BaseImage + `
        command: [sh, -c, "mkdir /www && hostname >/www/index.html && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: "` + cluster.BaseImage + `", command: [sleep, 1h]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: sidecar}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      initContainers:
      - name: proxy
        restartPolicy: Always
        image: ` + cluster.BaseImage + `
        command: [sh, -c, "sleep 1; mkdir /www && echo proxied >/www/index.html; httpd -f -p 15021 -h /www & trap 'echo terminated; exit 0' TERM; wait"]
        startupProbe: {httpGet: {path: /, port: 15021}, periodSeconds: 1, failureThreshold: 30}
      containers: [{name: app, image: "` + cluster.BaseImage + `", command: [wget, -qO-, "http://127.0.0.1:15021/"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: redirected}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: rules
    image: ` + cluster.BaseImage + `
    command:
    - sh
    - -ec
    - |
      iptables -t nat -A PREROUTING -p tcp --dport 9999 -j REDIRECT --to-ports 8080
      iptables -t nat -A OUTPUT -p tcp --dport 80 -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 8080
    securityContext: {capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}}
  containers:
  - name: app
    image: ` + cluster.BaseImage + `
    command: [sh, -c, "mkdir /www && echo redirected >/www/index.html && exec httpd -f -p 8080 -h /www"]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: token}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: ` + cluster.BaseImage + `
    command: [sleep, 1h]
    volumeMounts: [{name: token, mountPath: /var/run/secrets/tokens}]
  volumes:
  - name: token
    projected: {sources: [{serviceAccountToken: {path: token, audience: mesh, expirationSeconds: 3600}}]}
`

var workloadTests = []struct {
	name string
	test func(*testing.T, guest)
}{
	{"a pod reaches both replicas by the name of their Service", func(t *testing.T, g guest) {
		g.kubectl(t, "rollout", "status", "deployment/web", "--timeout=5m")
		g.wait(t, "Ready", "pod/client")
		answers := make(map[string]bool)
		for range 40 {
			answers[g.get(t, "client", "http://web.default.svc.cluster.local/")] = true
			if len(answers) == 2 {
				return
			}
		}
		t.Errorf("answered in 40 requests: %v, want two replicas", answers)
	}},
	{"a pod reaches a Service by its short name", func(t *testing.T, g guest) {
		if got := g.get(t, "client", "http://web/"); !strings.HasPrefix(got, "web-") {
			t.Errorf("answer: %q", got)
		}
	}},
	{"a replica reaches itself through its Service", func(t *testing.T, g guest) {
		g.kubectl(t, "scale", "deployment/web", "--replicas=1")
		var pods []string
		process.Eventually(t, "one replica is left", func() bool {
			pods = strings.Fields(g.kubectl(t, "get", "pods", "--selector=app=web", "--output=name"))
			return len(pods) == 1
		})
		g.get(t, pods[0], "http://web/")
	}},
	{"a Job with a native sidecar completes", func(t *testing.T, g guest) {
		g.wait(t, "Complete", "job/sidecar")
		if got := g.kubectl(t, "logs", "job/sidecar", "--container=app"); got != "proxied" {
			t.Errorf("the app got %q at its first and only request", got)
		}
		if got := g.kubectl(t, "logs", "job/sidecar", "--container=proxy"); got != "terminated" {
			t.Errorf("the sidecar ended with %q", got)
		}
	}},
	{"an init container with NET_ADMIN redirects the pod's connections", func(t *testing.T, g guest) {
		g.wait(t, "Ready", "pod/redirected")
		ip := g.kubectl(t, "get", "pod", "redirected", "--output=jsonpath={.status.podIP}")
		for direction, args := range map[string][]string{
			"in":  {"exec", "client", "--", "wget", "-qO-", "http://" + ip + ":9999/"},
			"out": {"exec", "redirected", "--container=app", "--", "wget", "-qO-", "http://10.99.99.99/"},
		} {
			if got := g.kubectl(t, args...); got != "redirected" {
				t.Errorf("%s: answer %q", direction, got)
			}
		}
	}},
	{"a projected token is good for its audience alone", func(t *testing.T, g guest) {
		g.wait(t, "Ready", "pod/token")
		token := g.kubectl(t, "exec", "token", "--", "cat", "/var/run/secrets/tokens/token")
		for audience, want := range map[string]string{"mesh": "true", "other": ""} {
			if got := g.review(t, token, audience); got != want {
				t.Errorf("for audience %s: authenticated %q, want %q", audience, got, want)
			}
		}
	}},
	{"a service account may not read secrets", func(t *testing.T, g guest) {
		out, _ := g.Enter(t.Context(), "kubectl", "auth", "can-i", "list", "secrets", "--as=system:serviceaccount:default:default").CombinedOutput()
		if got := strings.TrimSpace(string(out)); !strings.HasSuffix(got, "no") {
			t.Errorf("may it? %s", got)
		}
	}},
}

// A guest of a cluster runs kubectl in it.
type guest struct{ *cluster.Cluster }

func (g guest) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := g.Enter(t.Context(), "kubectl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// get has a pod read a page. What a Service leads to is the same on the node a while after its objects.
func (g guest) get(t *testing.T, pod, page string) string {
	t.Helper()
	var answer string
	process.Retry(t, func() error {
		out, err := g.Enter(t.Context(), "kubectl", "exec", pod, "--", "wget", "-qO-", page).CombinedOutput()
		answer = strings.TrimSpace(string(out))
		return err
	})
	return answer
}

func (g guest) wait(t *testing.T, condition, object string) {
	t.Helper()
	g.kubectl(t, "wait", "--for=condition="+condition, object, "--timeout=5m")
}

// review has the API server review token for audience: "true" or "".
func (g guest) review(t *testing.T, token, audience string) string {
	t.Helper()
	cmd := g.Enter(t.Context(), "kubectl", "create", "--filename=-", "--output=jsonpath={.status.authenticated}")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": {"token": %q, "audiences": [%q]}}`, token, audience))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("reviewing a token: %v: %s", err, out)
	}
	return string(out)
}
