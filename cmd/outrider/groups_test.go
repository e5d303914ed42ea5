package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// A made pod is written as an object, with events and logs.
type made struct {
	name, namespace, node, hash, owner string // owner: KIND/NAME
	image, ip                          string
	env                                string // YAML of a list
	created, unready                   string // times of the day
	status                             string // YAML of a container's status; empty: it runs and is ready
	proxy                              string // log of its proxy; empty: it has none
	log, previous                      string
	events                             []string // REASON TIME MESSAGE
}

const day = "2026-11-24T"

func (m made) object() string {
	kind, owner, _ := strings.Cut(m.owner, "/")
	ready, phase := "False", "Running"
	if m.status == "" {
		m.status, ready = fmt.Sprintf("{name: app, ready: true, started: true, restartCount: 0, containerID: containerd://a, state: {running: {startedAt: %s%s}}}", day, m.created), "True"
	} else if strings.Contains(m.status, "ErrImagePull") || strings.Contains(m.status, "ConfigError") {
		phase = "Pending"
	}
	label := "pod-template-hash"
	if kind == "StatefulSet" || kind == "DaemonSet" {
		label = "controller-revision-hash"
	}
	if m.env == "" {
		m.env = "[]"
	}
	proxy, proxyStatus := "", ""
	if m.proxy != "" {
		proxy = "\n  - {name: istio-proxy, image: istio/proxyv2:1.24.1, args: [proxy, sidecar]}"
		proxyStatus = fmt.Sprintf("\n  - {name: istio-proxy, ready: false, restartCount: 0, containerID: containerd://p, state: {running: {startedAt: %s%s}}}", day, m.created)
		ready = "False"
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s, uid: %[2]s-%[1]s, creationTimestamp: %[10]s%[3]s, labels: {app: x, %[4]s: "%[5]s"}, ownerReferences: [{apiVersion: apps/v1, kind: %[6]s, name: %[7]s, uid: u, controller: true}]}
spec:
  nodeName: %[8]s
  containers:
  - {name: app, image: "%[9]s", env: %[13]s, readinessProbe: {httpGet: {path: /healthz, port: 8080}}}%[14]s
status:
  phase: %[11]s
  podIP: %[15]s
  startTime: %[10]s%[3]s
  conditions: [{type: PodScheduled, status: "True", lastTransitionTime: %[10]s%[3]s}, {type: Ready, status: "%[12]s", lastTransitionTime: %[10]s%[18]s}]
  containerStatuses:
  - %[16]s%[17]s
`, m.name, m.namespace, m.created, label, m.hash, kind, owner, m.node, m.image, day, phase, ready, m.env, proxy, m.ip, m.status, proxyStatus, cmp.Or(m.unready, m.created))
}

func event(kind, namespace, name, container, text string) string {
	reason, rest, _ := strings.Cut(text, " ")
	at, message, _ := strings.Cut(rest, " ")
	from := "kubelet"
	path := ""
	if kind != "Pod" {
		from = "controller"
	}
	if container != "" {
		path = ", fieldPath: 'spec.containers{" + container + "}'"
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Event
metadata: {name: "%[2]s-%[4]s-%[5]s", namespace: "%[3]s", uid: "%[1]s-%[3]s-%[2]s-%[4]s-%[5]s"}
involvedObject: {kind: %[1]s, namespace: "%[3]s", name: "%[2]s"%[6]s}
reason: %[4]s
message: '%[7]s'
source: {component: %[8]s}
count: 3
firstTimestamp: %[9]s%[5]s
lastTimestamp: %[9]s15:00:00Z
`, kind, name, namespace, reason, at, path, strings.ReplaceAll(message, "'", "''"), from, day)
}

// replicaSet returns a ReplicaSet of a Deployment.
func replicaSet(deployment, namespace, hash string, revision int, created, containers, more string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: %[1]s-%[3]s, namespace: %[2]s, creationTimestamp: %[5]s, labels: {app: x, pod-template-hash: "%[3]s"}, annotations: {deployment.kubernetes.io/revision: "%[4]d"}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %[1]s, uid: u, controller: true}]}
spec: {replicas: 4, template: {metadata: {labels: {app: x}}, spec: {containers: [%[6]s]}}}
%[7]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
`, deployment, namespace, hash, revision, created, containers, more)
}

func crashed(restarts, exit int, from, to string) string {
	return fmt.Sprintf(`{name: app, ready: false, started: false, restartCount: %d, containerID: containerd://b, state: {waiting: {reason: CrashLoopBackOff, message: back-off 5m0s restarting failed container}}, lastState: {terminated: {exitCode: %d, reason: Error, startedAt: %s%s, finishedAt: %s%s}}}`, restarts, exit, day, from, day, to)
}

func waits(reason, message string) string {
	return fmt.Sprintf(`{name: app, ready: false, started: false, restartCount: 0, state: {waiting: {reason: %s, message: '%s'}}}`, reason, strings.ReplaceAll(message, "'", "''"))
}

// letters are ends of names, as Kubernetes generates them.
func letters(i int) string {
	const all = "bcdfghjklmnpqrstvwxz2456789"
	return string([]byte{all[i%27], all[(i*7+3)%27], all[(i*11+5)%27], all[(i*5+1)%27], all[(i/27)%27]})
}

// groupCases are incidents of many pods.
var groupCases = map[string]func() (pods []made, more string){
	"a secret is missing, one old pod is well": func() (pods []made, more string) {
		for i := range 20 {
			m := made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("n%d", i%4), hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "14:02:00Z"}
			if i == 7 {
				m.name, m.hash, m.owner, m.image, m.created = "web-5b4c7d8f9-"+letters(i), "5b4c7d8f9", "ReplicaSet/web-5b4c7d8f9", "r.example/web:1.4", "09:00:00Z"
			} else {
				m.status, m.events = waits("CreateContainerConfigError", `secret "pay-db" not found`), []string{fmt.Sprintf(`Failed 14:02:%02dZ Error: secret "pay-db" not found`, 10+i)}
			}
			pods = append(pods, m)
		}
		return pods, replicaSet("web", "shop", "5b4c7d8f9", 7, day+"09:00:00Z", `{name: app, image: "r.example/web:1.4"}`, "") +
			replicaSet("web", "shop", "7d9f8c6b5", 8, day+"14:01:40Z", `{name: app, image: "r.example/web:1.5", env: [{name: PAY_PASSWORD, valueFrom: {secretKeyRef: {name: pay-db, key: password}}}]}`, "") +
			event("Deployment", "shop", "web", "", "ScalingReplicaSet 14:01:40Z Scaled up replica set web-7d9f8c6b5 from 0 to 5")
	},
	"three causes in one Deployment": func() (pods []made, more string) {
		for i := range 7 {
			m := made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("n%d", i%4), hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "14:02:00Z"}
			switch {
			case i < 3:
				m.status, m.events = waits("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "r.example/web:1.5": not found`), []string{`Failed 14:02:10Z Failed to pull image "r.example/web:1.5": not found`}
			case i < 5:
				m.status, m.events = waits("CreateContainerConfigError", `configmap "web" not found`), []string{`Failed 14:03:10Z Error: configmap "web" not found`}
			case i < 6:
				m.status, m.previous = crashed(1, 2, "14:02:05Z", "14:02:06Z"), day+"14:02:06.100Z panic: assignment to entry in nil map\n"
			}
			pods = append(pods, m)
		}
		return pods, ""
	},
	"one node of four is ill": func() (pods []made, more string) {
		for i := range 12 {
			m := made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("ip-10-0-0-%d", i%4), hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "14:02:00Z"}
			if i%4 == 2 {
				m.status, m.previous = crashed(i, 1, "14:22:05Z", "14:22:06Z"), day+"14:22:06.100Z FATAL cannot open /dev/fuse: No such file or directory\n"
			}
			pods = append(pods, m)
		}
		return pods, ""
	},
	"two revisions have it": func() (pods []made, more string) {
		for i := range 6 {
			hash := []string{"5b4c7d8f9", "7d9f8c6b5"}[i%2]
			pods = append(pods, made{name: "web-" + hash + "-" + letters(i), namespace: "shop", node: "n1", hash: hash, owner: "ReplicaSet/web-" + hash, image: "r.example/web:1." + []string{"4", "5"}[i%2], created: "14:02:00Z",
				status: crashed(1, 1, fmt.Sprintf("14:12:0%dZ", i), fmt.Sprintf("14:12:1%dZ", i)), previous: fmt.Sprintf(day+"14:12:1%d.100Z ERROR licence expired\n", i)})
		}
		return pods, replicaSet("web", "shop", "5b4c7d8f9", 7, day+"09:00:00Z", `{name: app, image: "r.example/web:1.4"}`, "") + replicaSet("web", "shop", "7d9f8c6b5", 8, day+"13:00:00Z", `{name: app, image: "r.example/web:1.5"}`, "")
	},
	"a StatefulSet half rolled out": func() (pods []made, more string) {
		for i := range 5 {
			m := made{name: fmt.Sprintf("db-%d", i), namespace: "data", node: fmt.Sprintf("n%d", i), hash: "db-65c9f7d8b4", owner: "StatefulSet/db", image: "r.example/db:9", created: "08:00:00Z"}
			if i > 2 {
				m.hash, m.image, m.created = "db-79b8d4c6f5", "r.example/db:10", "14:30:00Z"
				m.status, m.previous = crashed(4, 1, "14:35:05Z", "14:35:06Z"), fmt.Sprintf(day+"14:35:06.100Z FATAL: data of db-%d was made by version 9, which version 10 cannot read\n", i)
			}
			pods = append(pods, m)
		}
		return pods, "---\nkind: StatefulSet\napiVersion: apps/v1\nmetadata: {name: db, namespace: data}\n"
	},
	"one destination at many addresses": func() (pods []made, more string) {
		for i := range 8 {
			pods = append(pods, made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("n%d", i%4), hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "14:02:00Z",
				status: crashed(1, 1, "14:02:05Z", "14:02:06Z"), previous: fmt.Sprintf(day+"14:02:06.%d00Z Error: dial tcp 10.4.%d.%d:5432: connect: connection refused\n", i, i, 20+i)})
		}
		return pods, ""
	},
	"a probe at each pod's own address": func() (pods []made, more string) {
		for i := range 4 {
			ip := fmt.Sprintf("10.4.%d.%d", i, 20+i)
			pods = append(pods, made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("n%d", i%4), hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "14:02:00Z", ip: ip,
				status: "{name: app, ready: false, started: true, restartCount: 0, containerID: containerd://a, state: {running: {startedAt: " + day + "14:02:02Z}}}", log: day + "14:02:03.000Z listening on 9090\n",
				events: []string{fmt.Sprintf(`Unhealthy 14:02:1%dZ Readiness probe failed: Get "http://%s:8080/healthz": dial tcp %s:8080: connect: connection refused`, i, ip, ip)}})
		}
		return pods, ""
	},
	"two secrets are missing, which are two causes": func() (pods []made, more string) {
		for i := range 6 {
			secret := []string{"pay-db", "pay-tls"}[i%2]
			pods = append(pods, made{name: fmt.Sprintf("pay-%d", i), namespace: "shop", node: "n1", hash: "pay-65c9f7d8b4", owner: "StatefulSet/pay", image: "r.example/pay:1", created: "14:02:00Z",
				status: waits("CreateContainerConfigError", fmt.Sprintf("secret %q not found", secret)), events: []string{fmt.Sprintf("Failed 14:02:1%dZ Error: secret %q not found", i, secret)}})
		}
		return pods, ""
	},
	"the control plane is away": func() (pods []made, more string) {
		for i := range 6 {
			app, namespace := []string{"web", "pay", "api"}[i%3], []string{"shop", "bank", "shop"}[i%3]
			pods = append(pods, made{name: app + "-7d9f8c6b5-" + letters(i), namespace: namespace, node: fmt.Sprintf("n%d", i), hash: "7d9f8c6b5", owner: "ReplicaSet/" + app + "-7d9f8c6b5", image: "r.example/" + app + ":1", created: "14:02:00Z",
				proxy:  fmt.Sprintf(day+"14:02:0%d.000000Z\twarn\tenvoy config\tStreamAggregatedResources gRPC config stream to xds-grpc closed since 30s ago: 14, connection error: desc = \"transport: Error while dialing: dial tcp 10.96.0.%d:15012: connect: connection refused\"\n", i+1, i),
				status: "{name: app, ready: true, started: true, restartCount: 0, containerID: containerd://a, state: {running: {startedAt: " + day + "14:02:02Z}}}",
				events: []string{fmt.Sprintf(`Unhealthy 14:12:1%dZ Readiness probe failed: HTTP probe failed with statuscode: 503`, i)}})
		}
		return pods, ""
	},
	"a quota is used up": func() (pods []made, more string) {
		for i, app := range []string{"web", "api", "pay"} {
			failure := fmt.Sprintf(`status: {replicas: %d, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, lastTransitionTime: %s14:02:0%dZ, message: 'pods "%s-7d9f8c6b5-%s" is forbidden: exceeded quota: team, requested: limits.memory=1Gi, used: limits.memory=%dGi, limited: limits.memory=16Gi'}]}`, i, day, i, app, letters(i), 14+i)
			more += replicaSet(app, "shop", "7d9f8c6b5", 2, day+"14:02:00Z", "{name: app}", failure)
			for j := range i {
				pods = append(pods, made{name: app + "-7d9f8c6b5-" + letters(j), namespace: "shop", node: "n1", hash: "7d9f8c6b5", owner: "ReplicaSet/" + app + "-7d9f8c6b5", image: "r.example/" + app + ":1", created: "14:02:00Z"})
			}
		}
		return pods, more
	},
	"two nodes are lost": func() (pods []made, more string) {
		for i := range 8 {
			app := []string{"web", "pay"}[i%2]
			m := made{name: app + "-7d9f8c6b5-" + letters(i), namespace: "shop", node: fmt.Sprintf("node-%d", i/2), hash: "7d9f8c6b5", owner: "ReplicaSet/" + app + "-7d9f8c6b5", image: "r.example/" + app + ":1", created: "14:02:00Z"}
			if i < 4 {
				m.unready = fmt.Sprintf("14:40:0%dZ", 4+i)
				m.status = fmt.Sprintf("{name: app, ready: false, started: false, restartCount: 0, containerID: containerd://a, state: {terminated: {exitCode: 255, reason: Unknown, startedAt: %s14:02:02Z, finishedAt: %s14:40:0%dZ}}}", day, day, i)
			}
			pods = append(pods, m)
		}
		return pods, ""
	},
	"a ConfigMap was written": func() (pods []made, more string) {
		for i := range 5 {
			pods = append(pods, made{name: "web-7d9f8c6b5-" + letters(i), namespace: "shop", node: "n1", hash: "7d9f8c6b5", owner: "ReplicaSet/web-7d9f8c6b5", image: "r.example/web:1.5", created: "09:00:00Z",
				env:    "[{name: A, valueFrom: {configMapKeyRef: {name: web, key: a}}}, {name: B, valueFrom: {secretKeyRef: {name: web-key, key: b}}}]",
				status: crashed(3, 78, fmt.Sprintf("14:12:0%dZ", i), fmt.Sprintf("14:12:1%dZ", i)), previous: fmt.Sprintf(day+"14:12:1%d.100Z ERROR config: A: want a number, got \"ten\"\n", i)})
		}
		return pods, replicaSet("web", "shop", "7d9f8c6b5", 1, day+"09:00:00Z", `{name: app}`, "") +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop, creationTimestamp: 2026-10-01T00:00:00Z, managedFields: [{manager: kubectl-edit, operation: Update, time: " + day + "14:11:30Z}]}\ndata: {a: ten}\n" +
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: web-key, namespace: shop, creationTimestamp: " + day + "16:00:00Z}\ndata: {b: c2VjcmV0}\n" +
			event("Secret", "shop", "web-key", "", "Updated 14:00:00Z Updated Secret from password=hunter22xyz")
	},
}

// folder writes a case as a person would have it.
func folder(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if at := os.Getenv("GROUPS"); at != "" {
		dir = filepath.Join(at, strings.ReplaceAll(name, " ", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pods, more := groupCases[name]()
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var objects, events strings.Builder
	for _, m := range pods {
		objects.WriteString(m.object())
		for _, e := range m.events {
			container := "app"
			if m.proxy != "" {
				container = "istio-proxy"
			}
			events.WriteString(event("Pod", m.namespace, m.name, container, e))
		}
		for end, text := range map[string]string{"_app.log": m.log, "_app.previous.log": m.previous, "_istio-proxy.log": m.proxy} { // in any order: each is a file
			if text != "" {
				write(m.name+end, text)
			}
		}
	}
	write("objects.yaml", objects.String()+more)
	write("events.yaml", events.String())
	return dir
}

// A report of many pods says how many have which cause, since when, what they have in common, what changed before, and
// what to do.
func TestGroups(t *testing.T) {
	for name := range groupCases { // in any order: each is a test
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run([]string{"diagnose", "--all", "-f", folder(t, name)}, &out, &errs); status != 1 {
				t.Errorf("status %d", status)
			}
			text, _, _ := strings.Cut(out.String(), "\nUNTIL READY")
			_, text, _ = strings.Cut(text, "\n\n") // the counts by code
			_, text, _ = strings.Cut(text, "\n\n")
			file := filepath.Join("testdata", "groups", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".txt")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(text+errs.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(string(want), text+errs.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
