package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A failure at the start of a pod is a cause only if no event proves that its step succeeded later.
func TestAFailureThatWasOvercome(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: rank-0, namespace: ml, creationTimestamp: "2026-05-06T07:00:00Z"}
spec: {nodeName: gpu-3, containers: [{name: rank, image: example.com/rank:9}]}
status:
  phase: Pending
  startTime: "2026-05-06T07:00:00Z"
  containerStatuses: [{name: rank, ready: false, restartCount: 0, state: {waiting: {reason: ContainerCreating}}}]
`
	event := func(second int, reason, message string) string {
		of, reporter := "", "kubelet"
		if reason == "Pulling" || reason == "Created" {
			of = ", fieldPath: 'spec.containers{rank}'"
		}
		return fmt.Sprintf("---\napiVersion: v1\nkind: Event\nmetadata: {name: e%d%s, namespace: ml}\ninvolvedObject: {kind: Pod, name: rank-0, namespace: ml%s}\nreason: %s\nmessage: '%s'\nsource: {component: %s}\nfirstTimestamp: \"2026-05-06T07:00:%02dZ\"\nlastTimestamp: \"2026-05-06T07:00:%02dZ\"\ncount: 1\n",
			second, strings.ToLower(reason), of, reason, message, reporter, second, second)
	}
	mount := func(second int) string {
		return event(second, "FailedMount", `MountVolume.SetUp failed for volume "model" : configmap "model" not found`)
	}
	sandbox := func(second int) string {
		return event(second, "FailedCreatePodSandBox", "Failed to create pod sandbox: plugin type=\"calico\" failed (add): dial unix /run/x.sock: connect: connection refused")
	}
	for name, c := range map[string]struct{ events, want string }{ // in any order: subtests
		"the volumes came, and the image is pulled": {mount(2) + event(5, "Pulling", "Pulling image"), "starting "},
		"in the same second":                        {mount(2) + event(2, "Pulling", "Pulling image"), "starting "},
		"the sandbox came":                          {sandbox(2) + event(6, "Pulling", "Pulling image"), "starting "},
		"a container was made":                      {mount(2) + event(6, "Created", "Created container"), "starting "},
		"it fails again after the pull":             {event(2, "Pulling", "Pulling image") + mount(9), "found volume-missing"},
		"a new sandbox fails after the pull":        {event(2, "Pulling", "Pulling image") + sandbox(9), "found no-sandbox"},
		"nothing came after it":                     {event(1, "Scheduled", "assigned") + mount(2), "found volume-missing"},
		"the volumes came, and the sandbox did not": {mount(2) + sandbox(9), "found no-sandbox"},
		"attached, but not mounted":                 {event(2, "SuccessfulAttachVolume", "attached") + mount(2), "found volume-missing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "events.yaml": c.events})
			if got := key(r); got != c.want && !(c.want == "starting " && r.Verdict == result.Starting) {
				t.Errorf("%s: %s; want %s", got, r.Sentence, c.want)
			}
		})
	}
}

// The sentence about a step of the start has the event that says why, and its remedy fits the reason.
func TestWhyAStepOfTheStartFailed(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns, creationTimestamp: \"2026-05-06T07:00:00Z\"}\nspec: {nodeName: w1, containers: [{name: c, image: i}]}\nstatus: {phase: Pending}\n"
	event := func(second int, reason, message string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Event\nmetadata: {name: e%d, namespace: ns}\ninvolvedObject: {kind: Pod, name: p, namespace: ns}\nreason: %s\nmessage: '%s'\nsource: {component: kubelet}\nfirstTimestamp: \"2026-05-06T07:00:%02dZ\"\nlastTimestamp: \"2026-05-06T07:00:%02dZ\"\ncount: 1\n", second, reason, message, second, second)
	}
	const inTime = "Unable to attach or mount volumes: unmounted volumes=[s], unattached volumes=[s t]: timed out waiting for the condition"
	const sandbox = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "ab12": plugin type="%s" failed (add): %s`
	for name, c := range map[string]struct{ events, says, do string }{ // in any order: subtests
		"the store refuses":                  {event(1, "FailedMount", `MountVolume.SetUp failed for volume "s": GetSecretValue: AccessDeniedException: 403 caller is not authorized`) + event(3, "FailedMount", inTime), "caller is not authorized", "refuses the identity of the pod"},
		"it says what it does not find, too": {event(1, "FailedMount", `MountVolume.SetUp failed for volume "s": failed to mount secrets store objects: RESPONSE 403: 403 Forbidden, caller is not authorized, assignment: (not found)`), "403", "refuses the identity of the pod"},
		"no reason at all":                   {event(3, "FailedMount", inTime), "unmounted volumes=[s]", "log of the CSI driver"},
		"rights on files":                    {event(1, "FailedMount", `MountVolume.SetUp failed for volume "s": mount.nfs: access denied by server`), "access denied", "rights on the storage"},
		"no address":                         {event(1, "FailedCreatePodSandBox", fmt.Sprintf(sandbox, "host-local", "no IP addresses available in range set: 10.1.0.1-10.1.0.6")), "cannot be created: plugin host-local: no IP", "no IP address is left"},
		"the plugin is not there":            {event(1, "FailedCreatePodSandBox", fmt.Sprintf(sandbox, "cilium-cni", "unable to connect: dial unix /run/c.sock: connect: no such file or directory")), "plugin cilium-cni", "runs on this node"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "events.yaml": c.events})
			if len(r.Findings) == 0 || !strings.Contains(r.Sentence, c.says) || !strings.Contains(r.Findings[0].Remedy.Sentence, c.do) {
				t.Errorf("%s\n%+v", r.Sentence, r.Findings)
			}
		})
	}
}
