package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/diagnose/nopod"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

// The first sentence says why pods cannot be created, and the remedy what to do.
func TestCreation(t *testing.T) {
	for message, want := range map[string]string{
		`Error creating: pods "w-x" is forbidden: exceeded quota: team, requested: limits.cpu=3,requests.memory=1Gi, used: limits.cpu=14,requests.memory=1Gi, limited: limits.cpu=16,requests.memory=9Gi`: "quota team has no room left: a pod asks limits.cpu=3,requests.memory=1Gi, limits.cpu=14,requests.memory=1Gi of limits.cpu=16,requests.memory=9Gi are used",
		`Error creating: pods "w-x" is forbidden: failed quota: team: must specify limits.cpu for: a; limits.memory for: a`:                                                                               "quota team wants each container to set limits.cpu for: a; limits.memory for: a",
		`Error creating: Internal error occurred: failed calling webhook "a.b.io": failed to call webhook: Post "https://istiod.istio-system.svc:443/inject?timeout=10s": context deadline exceeded`:      "the API server cannot call the admission webhook a.b.io at istiod.istio-system.svc:443: context deadline exceeded",
		`Internal error occurred: failed calling webhook "a.b.io": Post https://x.y.svc:443/i?t=30s: no endpoints available for service "x"`:                                                              `the API server cannot call the admission webhook a.b.io at x.y.svc:443: no endpoints available for service "x"`,
		`Internal error occurred: failed calling webhook "a.b.io": the server could not find the requested resource`:                                                                                      "the API server cannot call the admission webhook a.b.io: the server could not find the requested resource",
		`admission webhook "validate.kyverno.svc-fail" denied the request: policy x failed: no latest`:                                                                                                    "the admission webhook validate.kyverno.svc-fail refuses the pods: policy x failed: no latest",
		`pods "w-x" is forbidden: error looking up service account shop/robot: serviceaccount "robot" not found`:                                                                                          "the service account robot of namespace shop does not exist",
		`pods "w-x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "a")`:                                                                            `the namespace enforces pod security restricted:latest, which the pods violate: allowPrivilegeEscalation != false (container "a")`,
		`pods "w-x" is forbidden: unable to validate against any security context constraint: [provider restricted: .runAsUser]`:                                                                          "no security context constraint allows the pods: [provider restricted: .runAsUser]",
		`pods "w-x" is forbidden: maximum cpu usage per Container is 2, but limit is 3`:                                                                                                                   "a LimitRange of the namespace does not allow the pods: maximum cpu usage per Container is 2, but limit is 3",
		`pods "w-x" is forbidden: no PriorityClass with name high was found`:                                                                                                                              "the PriorityClass high does not exist",
		`pods "w-x" is forbidden: pod rejected: RuntimeClass "gvisor" not found`:                                                                                                                          "the RuntimeClass gvisor does not exist",
		`pods "w-x" is forbidden: unable to create new content in namespace shop because it is being terminated`:                                                                                          "the namespace is being deleted",
		`Pod "w-x" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit`:                                                                        `the pod template is not valid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit`,
		`pods "w-x" is forbidden: something else`: "the API server refuses them: something else",
		`etcdserver: request timed out`:           "etcdserver: request timed out",
	} {
		w := &evidence.Creator{Kind: "ReplicaSet", Namespace: "shop", Name: "w", Want: 2, Have: 0, Events: []evidence.Event{{Reason: "FailedCreate", Message: message, Count: 3}}}
		r := nopod.Creation(w, false)
		f := r.Findings[0]
		if r.Sentence != "no pod of ReplicaSet w can be created: "+want || f.Code != "pods-not-created" || f.Confidence != result.Certain || f.Remedy.Sentence == "" || r.Pod != "ReplicaSet shop/w" {
			t.Errorf("%s\n%+v", r.Sentence, f)
		}
	}
}

// Whether a webhook is not reached, answers with a certificate that is not accepted, or lacks what it calls itself, is not
// mended in the same way.
func TestCreationRemedies(t *testing.T) {
	const calling = `Internal error occurred: failed calling webhook "a.b.io": failed to call webhook: Post "https://x.y.svc:443/i?t=9s": `
	for message, want := range map[string]struct{ says, never string }{ // in any order: each is of its own
		calling + `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2025-01-02T00:00:00Z is after 2025-01-01T00:00:00Z`: {"renew the certificate with which x.y.svc:443", "bring back"},
		calling + `x509: certificate has expired`: {"renew the certificate with which x.y.svc:443", "delete the"},
		calling + `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2025-01-02T00:00:00Z is before 2025-01-03T00:00:00Z`: {"correct the clock", "renew"},
		calling + `x509: certificate signed by unknown authority`:                                                            {"caBundle", "bring back"},
		calling + `x509: certificate is valid for z.y.svc, not x.y.svc`:                                                      {"by which it is called", "bring back"},
		calling + `dial tcp 10.0.0.9:443: connect: connection refused`:                                                       {"bring back the program that answers", "certificate"},
		`admission webhook "a.b.io" denied the request: vault agent: Get "https://v.s.svc:8200": dial tcp: i/o timeout`:      {"bring back the program that the webhook calls", "policy"},
		`admission webhook "a.b.io" denied the request: rpc error: code = DeadlineExceeded desc = context deadline exceeded`: {"bring back the program that the webhook calls", "policy"},
		`admission webhook "a.b.io" denied the request: container app may not set the capability NET_RAW`:                    {"change the pod template", "bring back"},
	} {
		w := &evidence.Creator{Kind: "Job", Namespace: "n", Name: "w", Want: 1, Events: []evidence.Event{{Reason: "FailedCreate", Message: message, Count: 1}}}
		if do := nopod.Creation(w, false).Findings[0].Remedy.Sentence; !strings.Contains(do, want.says) || strings.Contains(do, want.never) {
			t.Errorf("%s: %s", message, do)
		}
	}
}

func TestCreationOfSome(t *testing.T) {
	const message = `pods "w-x" is forbidden: exceeded quota: q, requested: limits.cpu=3, used: limits.cpu=2, limited: limits.cpu=4`
	s := readSet(t, map[string]string{"rs.yaml": "kind: ReplicaSet\nmetadata: {name: w, namespace: shop}\nspec: {replicas: 4, template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}}}\n" +
		"status: {replicas: 2, conditions: [{type: ReplicaFailure, status: \"True\", message: '" + message + "'}]}\n"})
	r := nopod.Creation(s.Creators[0], false)
	if !strings.HasPrefix(r.Sentence, "only 2 of 4 pods of ReplicaSet w can be created: quota q") || !strings.Contains(r.Findings[0].Evidence[1].Text, "the other 2 was added at admission") || r.Findings[0].Remedy.Command != "kubectl -n shop describe quota" {
		t.Errorf("%s\n%+v", r.Sentence, r.Findings[0])
	}
	s = readSet(t, map[string]string{"rs.yaml": "kind: ReplicaSet\nmetadata: {name: w, namespace: shop}\nspec: {replicas: 4, template: {spec: {containers: [{name: a, resources: {limits: {cpu: 3}}}]}}}\n" +
		"status: {replicas: 2, conditions: [{type: ReplicaFailure, status: \"True\", message: '" + message + "'}]}\n"})
	if f := nopod.Creation(s.Creators[0], false).Findings[0]; len(f.Evidence) != 1 {
		t.Errorf("the template itself asks it: %+v", f.Evidence)
	}
	s = readSet(t, map[string]string{"events.yaml": "kind: Event\nmetadata: {name: e}\ninvolvedObject: {kind: Job, name: mig, namespace: shop}\nreason: FailedCreate\nmessage: " + `'` + message + `'` + "\n"})
	if f := nopod.Creation(s.Creators[0], false).Findings[0]; f.Confidence != result.Likely || len(f.Against) != 1 {
		t.Errorf("an event alone: %+v", f)
	}
	if _, err := kinds.Of("pods-not-created"); err != nil {
		t.Error(err)
	}
}

func readSet(t *testing.T, files map[string]string) *evidence.Set {
	t.Helper()
	s, err := gather.Read(t.Context(), gather.Options{}, folderOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
