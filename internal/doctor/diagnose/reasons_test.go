package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// An init container that sets up the capture says why it failed in its log or in its termination message, also in lines
// of a low level, and in a line of text with lines of its own.
func TestWhyTheCaptureFailed(t *testing.T) {
	const (
		legacy  = "the node does not offer the tables of legacy iptables"
		command = `time="2026-03-02T13:00:14Z" level=info msg="iptables-save -t nat"` + "\n"
		says    = `time="2026-03-02T13:00:14Z" level=info msg="iptables-save v1.8.7 (legacy): Cannot initialize: iptables who? (do you need to insmod?)\n\n"` + "\n"
		aborts  = `time="2026-03-02T13:00:14Z" level=error msg="aborting firewall configuration"` + "\nError: exit status 1\nUsage:\n  proxy-init [flags]\n"
	)
	ended := func(message string) string {
		return `initContainerStatuses: [{name: linkerd-init, ready: false, restartCount: 3, lastState: {terminated: {exitCode: 1, reason: Error, message: ` + message + `, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:15Z"}}, state: {waiting: {reason: CrashLoopBackOff}}}]`
	}
	quoted := `"` + strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`).Replace(command+says+aborts) + `"`
	const spec = "initContainers: [{name: linkerd-init}], containers: [{name: web}, {name: linkerd-proxy}]"
	const what = "linkerd-init, which sets up the capture, failed: "
	checkCauses(t, map[string]cause{
		"in its termination message": {spec: spec, status: ended(quoted), want: "found capture-not-in-place", says: what + legacy},
		"in its log":                 {spec: spec, status: ended(`""`), files: map[string]string{"linkerd-init.previous.log": command + says + aborts}, want: "found capture-not-in-place", says: what + legacy},
		"in words that no row has":   {spec: spec, status: ended(`""`), files: map[string]string{"linkerd-init.previous.log": "Error: unknown flag: --log-fromat\nUsage:\n  proxy-init [flags]\n"}, want: "found capture-not-in-place", says: what + "Error: unknown flag: --log-fromat (exit code 1)"},
		"nowhere":                    {spec: spec, status: ended(`""`), want: "found capture-not-in-place", says: what + "exit code 1"},
	})
}

// A proxy whose connection fails at a certificate did reach its control plane.
func TestCertificateOfTheControlPlane(t *testing.T) {
	const spec = "containers: [{name: web}, {name: linkerd-proxy}]"
	notReady := strings.Replace(running, "ready: true", "ready: false", 1)
	hookFailed := `{name: NAME, ready: false, restartCount: 1, lastState: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:02:12Z"}}, state: {waiting: {reason: PostStartHookError, message: "Exec lifecycle hook ([linkerd-await]) for Container \"linkerd-proxy\" in Pod \"web-1_shop(u1)\" failed - error: command 'linkerd-await' exited with 69: not ready\n, message: \"not ready\\n\""}}}`
	log := func(err string) map[string]string {
		return map[string]string{"linkerd-proxy.log": "[     0.001s]  INFO ThreadId(01) linkerd2_proxy: release 2.1\n[    10.105s]  WARN ThreadId(02) identity:identity{server.addr=linkerd-identity-headless.linkerd.svc.cluster.local:8080}:controller{addr=linkerd-identity-headless.linkerd.svc.cluster.local:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.42.1.5:8080: " + err + "\n"}
	}
	status := statusWith("", "web", notReady, "linkerd-proxy", notReady)
	checkCauses(t, map[string]cause{
		"not signed by a root of it": {spec: spec, status: status, files: log("invalid peer certificate: UnknownIssuer error.sources=[invalid peer certificate: UnknownIssuer]"), want: "found no-certificate", sure: result.Certain,
			says: "linkerd-proxy is not ready: its control plane was reached, but a certificate between the two is not accepted: invalid peer certificate: UnknownIssuer"},
		"its hook waited for that": {spec: spec, status: statusWith("", "web", notReady, "linkerd-proxy", hookFailed), files: log("invalid peer certificate: Expired error.sources=[x]"), want: "found no-certificate", sure: result.Certain, says: "invalid peer certificate: Expired"},
		"a hook, and no log":       {spec: spec, status: statusWith("", "web", notReady, "linkerd-proxy", hookFailed), want: "found proxy-not-ready", says: "linkerd-proxy was not ready in time for its postStart hook, and so is ended, and why is not known without its log"},
		"not reached":              {spec: spec, status: status, files: log("Connection refused (os error 111)"), want: "found no-control-plane", sure: result.Certain, says: "it does not reach its control plane"},
	})
}

// A remedy says what to do, or nothing: to look at a log or at an object is no advice.
func TestNoIdleAdvice(t *testing.T) {
	const spec = "containers: [{name: web}]"
	shutdown := `conditions: [{type: DisruptionTarget, status: "True", reason: TerminationByKubelet, message: "Pod was terminated in response to imminent node shutdown.", lastTransitionTime: "2026-03-02T13:05:00Z"}], `
	checkAdvice(t, map[string]advice{
		"a line without a class":    {spec: spec, status: statusWith("", "web", waits), files: map[string]string{"web.previous.log": "ERROR the moon is in the wrong house\n"}, code: "app-crash", command: "-", not: "correct what"},
		"a file":                    {spec: spec, status: statusWith("", "web", waits), files: map[string]string{"web.previous.log": "ERROR cannot start: open /etc/web/a.yaml: no such file or directory\n"}, code: "app-crash", does: "has /etc/web/a.yaml", command: "-"},
		"a fault of the program":    {spec: spec, status: statusWith("", "web", waits), files: map[string]string{"web.previous.log": "panic: runtime error: index out of range [3] with length 3\n"}, code: "app-crash", does: "it is a fault in the program", command: "-"},
		"no log":                    {spec: spec, status: statusWith("", "web", waits), code: "app-crash", command: "kubectl -n shop logs web-1 -c web --previous", not: "see the"},
		"a program that is missing": {spec: spec, status: statusWith("", "web", strings.Replace(waits, "reason: CrashLoopBackOff", `reason: RunContainerError, message: 'exec: "/app/run": stat /app/run: no such file or directory'`, 1)), code: "container-not-created", does: "has /app/run", not: "see the message"},
		"a node that shuts down":    {spec: spec, meta: `, deletionTimestamp: "2026-03-02T13:05:30Z"`, status: statusWith(shutdown, "web", running), code: "evicted", does: "the pod has no fault", not: "had left"},
	})
}
