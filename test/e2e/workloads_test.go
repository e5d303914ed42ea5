package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/test/cluster"
	"outrider.dev/test/e2e/world"
)

// A workload is a staged incident of a workload "web" that is in no mesh, in a namespace of its own.
type workload struct {
	manifest string
	webhook  func(r *run, namespace string) string // returns the configuration of a webhook, which comes before the manifest
	enforce  string                                // level of Pod Security in the namespace
	ask      string                                // KIND/NAME, as a user calls the workload; empty: deploy/web
	shows    func(*world.Pod) bool                 // a pod shows the incident; nil: no pod can be created
	judged
	often bool // the case is in every run, not only in the nightly run
}

// workloads are incidents that need no proxy, with the times and texts of a real kubelet.
var workloads = map[string]workload{
	"init waits for no endpoint": {
		manifest: awaits("until nc -w 2 db 5432 </dev/null; do sleep 1; done", `selector: {app: db}`),
		shows:    repeats("refused"), judged: judged{"found dependency-down wait: refused at db (", "starting: nc -w 2 db 5432"},
	},
	"init waits for no name": {
		manifest: awaits("until nslookup db-primary; do sleep 1; done", `selector: {app: db}`),
		shows:    repeats("NXDOMAIN"), judged: judged{"found name-not-resolved wait: db-primary", "starting: nslookup db-primary"}, often: true,
	},
	"init waits for lost packets": { // the endpoint is on another node, so kube-proxy drops them
		manifest: awaits("until nc -w 2 db 5432 </dev/null; do sleep 1; done", `internalTrafficPolicy: Local`) + `
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}, addressType: IPv4,
  ports: [{name: "", port: 5432}], endpoints: [{addresses: [10.244.99.9], nodeName: elsewhere, conditions: {ready: true}}]}`,
		shows: repeats("timed out"), judged: judged{"found dependency-down wait: db:5432", "starting: nc -w 2 db 5432"},
	},
	"init waits in silence": {
		manifest: awaits("until nslookup db-primary >/dev/null 2>&1; do echo still waiting; sleep 1; done", `selector: {app: db}`),
		shows:    repeats("still waiting"), judged: judged{"starting: nslookup db-primary", "starting: nslookup db-primary"},
	},
	"sidecar of a CronJob": {
		manifest: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {schedule: "* * * * *", concurrencyPolicy: Forbid, jobTemplate: {spec: {template: {metadata: {labels: {app: web}}, spec: {restartPolicy: Never,
  containers: [{name: app, image: "` + world.AppImage + `", command: [/app, work]}, ` + shell("ships", "while true; do echo shipped; sleep 2; done", "") + `]}}}}}}`,
		ask: "cronjob/web", shows: func(p *world.Pod) bool { return stateOf(p, "app").Terminated != nil && runs(p, "ships") },
		judged: judged{"found job-never-ends ships", "found job-never-ends ships"},
	},
	"port of a sidecar": {
		manifest: deployment("containers: [" + server("serve", "ports: [{containerPort: 8080}]") + ", " + shell("side", "sleep 3; exec nc -l -p 8080", "ports: [{containerPort: 8080}]") + "]"),
		shows:    backsOff("side"), judged: judged{"found app-crash side: 8080, which app has", "undecided app-crash side: app declare port 8080"},
	},
	"pod security": {
		manifest: deployment("containers: [" + server("serve", "") + "]"), enforce: "restricted",
		judged: judged{"found pods-not-created: restricted", "found pods-not-created: restricted"}, often: true,
	},
	"webhook changes limits": {
		manifest: deployment("containers: [" + server("serve, --eat=100", "resources: {limits: {memory: 256Mi}}") + "]"),
		webhook:  limiting, shows: backsOff("app"), judged: judged{"found out-of-memory app: its limit is 32Mi, and 256Mi in the pod template", "found out-of-memory app"},
	},
	"webhook is down": {
		manifest: deployment("containers: [" + server("serve", "") + "]"),
		webhook: func(_ *run, namespace string) string {
			return configuration("Validating", namespace, "service: {name: policy, namespace: "+namespace+"}")
		},
		judged: judged{`found pods-not-created: service "policy" not found`, `found pods-not-created: service "policy" not found`},
	},
	"no service account": {
		manifest: deployment("serviceAccountName: robot, containers: [" + server("serve", "") + "]"),
		judged:   judged{"found pods-not-created: robot", "found pods-not-created: robot"},
	},
	"no Secret": {
		manifest: deployment("containers: [" + server("serve", "envFrom: [{secretRef: {name: database}}]") + "]"),
		shows:    func(p *world.Pod) bool { return waitsFor(p, "app", "CreateContainerConfigError") },
		judged:   judged{"found config-missing app: database", "found config-missing app: database"},
	},
	"no volume": {
		manifest: deployment("containers: [" + server("serve", "volumeMounts: [{name: settings, mountPath: /settings}]") + "], volumes: [{name: settings, configMap: {name: settings}}]"),
		shows:    event("FailedMount"), judged: judged{"found volume-missing: settings", "found volume-missing: settings"},
	},
	"no node": {
		manifest: deployment("containers: [" + server("serve", "resources: {requests: {cpu: 1000}}") + "]"),
		shows:    event("FailedScheduling"), judged: judged{"found not-scheduled: Insufficient cpu", "found not-scheduled: Insufficient cpu"},
	},
	"no program": {
		manifest: deployment("containers: [{name: app, image: \"" + cluster.BaseImage + "\", command: [/gone]}]"),
		shows:    backsOff("app"), judged: judged{"found container-not-created app: /gone", "found container-not-created app: /gone"},
	},
	"not ready": {
		manifest: deployment("containers: [" + server("serve, --healthy=1h", "readinessProbe: {periodSeconds: 1, httpGet: {path: /ready, port: 8080}}") + "]"),
		shows:    event("Unhealthy"), judged: judged{"found probe-fails app: 503", "found probe-fails app: 503"},
	},
}

// deployment returns a Deployment with fields of its pod.
func deployment(fields string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 1, " + fields + "}}}}"
}

// server returns the container of an application with arguments and further fields; shell one that runs a script.
func server(args, fields string) string {
	return fmt.Sprintf(`{name: app, image: "%s", args: [%s], %s}`, world.AppImage, args, fields)
}

func shell(name, script, fields string) string {
	return fmt.Sprintf(`{name: %s, image: "%s", command: [sh, -c, "%s"], %s}`, name, cluster.BaseImage, script, fields)
}

// awaits returns a Deployment with an init container, and the Service db.
func awaits(script, service string) string {
	return deployment("initContainers: ["+shell("wait", script, "")+"], containers: ["+server("serve", "")+"]") +
		"\n---\n{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {ports: [{port: 5432}], " + service + "}}"
}

// repeats returns a function that reports whether the init container runs, by the API, and has written a text again and again.
func repeats(text string) func(*world.Pod) bool {
	return func(p *world.Pod) bool { return runs(p, "wait") && p.Wrote("wait", text) > 2 }
}

func backsOff(container string) func(*world.Pod) bool {
	return func(p *world.Pod) bool { return waitsFor(p, container, "CrashLoopBackOff") }
}

func waitsFor(p *world.Pod, container, reason string) bool {
	s := stateOf(p, container).Waiting
	return s != nil && s.Reason == reason
}

// event returns a function that reports whether a pod has an event with a reason.
func event(reason string) func(*world.Pod) bool {
	return func(p *world.Pod) bool { return hasEvent(p.Namespace, "involvedObject.name="+p.Name+",reason="+reason) }
}

func hasEvent(namespace, fields string) bool {
	found, err := w.Client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{FieldSelector: fields})
	return err == nil && len(found.Items) > 0
}

// configuration returns the configuration of a webhook for the pods of one namespace.
func configuration(kind, namespace, client string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: %[1]sWebhookConfiguration, metadata: {name: %[2]s}, webhooks: [{name: pods.%[2]s.test, clientConfig: {%[3]s},
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}},
  failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 5}]}`, kind, namespace, client)
}

// limiting serves a webhook that gives the first container of a pod another memory limit.
func limiting(r *run, namespace string) string {
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(rw, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(`[{"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"memory": "32Mi"}, "requests": {"memory": "32Mi"}}}]`),
		}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	r.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return configuration("Mutating", namespace, fmt.Sprintf("url: %q, caBundle: %s", s.URL+"/", base64.StdEncoding.EncodeToString(ca)))
}

// staged brings a workload into its state, and returns its namespace and the pod that shows the incident, if there is one.
func (r *run) staged(c workload) (namespace string, p *world.Pod) {
	namespace = "incident-" + strings.ReplaceAll(strings.ToLower(r.Name()[strings.LastIndex(r.Name(), "/")+1:]), "_", "-")
	r.Cleanup(func() {
		_, err := w.Kubectl(context.Background(), "", "delete", "--ignore-not-found", "--wait=false", "namespace/"+namespace, "mutatingwebhookconfiguration/"+namespace, "validatingwebhookconfiguration/"+namespace)
		if err != nil {
			r.Error(err)
		}
	})
	labels := map[string]string{}
	if c.enforce != "" {
		labels["pod-security.kubernetes.io/enforce"] = c.enforce
	}
	r.must(w.Namespace(r.Context(), namespace, labels))
	if c.webhook != nil {
		r.must(w.Apply(r.Context(), c.webhook(r, namespace)))
		r.must(w.Until(r.Context(), "the API server calls the webhook", func() bool {
			p, err := w.Client.CoreV1().Pods(namespace).Create(r.Context(), awesome(namespace, "none"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil || len(p.Spec.Containers[0].Resources.Limits) > 0
		}))
	}
	_, err := w.Kubectl(r.Context(), c.manifest, "apply", "--namespace="+namespace, "--filename=-")
	r.must(err)
	if c.shows == nil {
		r.must(w.Until(r.Context(), "an event of "+namespace, func() bool { return hasEvent(namespace, "reason=FailedCreate") }))
		return namespace, nil
	}
	r.must(w.Until(r.Context(), "a pod of "+namespace, func() bool {
		pods, err := w.Adopt(r.Context(), namespace, "app=web")
		if err == nil && len(pods) > 0 {
			p = pods[0]
		}
		return p != nil
	}))
	r.keep(p)
	r.until(p, "shows the incident", func() bool { return c.shows(p) })
	return namespace, p
}
