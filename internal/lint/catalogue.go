package lint

import (
	"slices"

	"outrider.dev/internal/lint/finding"
)

// Kinds are all that lint can find, by theme.
func Kinds() []finding.Kind { return slices.Clone(kinds) }

// kinds is the list of codes. They are stable: one that is not needed any more stays.
var kinds = func() []finding.Kind {
	all := []finding.Kind{
		{Code: "no-order", Severity: finding.Warning, Title: "nothing makes a container wait for the proxy, and capture is on",
			Explanation: `Every connection of the pod is redirected to the proxy, from the first moment on, and the proxy needs a certificate and its configuration before it listens. An app that starts meanwhile gets "Connection refused" for what it calls, fails, is restarted, and works at the second try.

Injection lets every container wait for the proxy unless the pod turns that off (outrider.dev/start: off, holdApplicationUntilProxyStarts: false) or says itself who waits. A proxy that another mesh put into the pod holds nobody by itself.`},
		{Code: "hold-fails-open", Severity: finding.Warning, Title: "a postStart hold lets the app start without its proxy",
			Explanation: `The kubelet starts the plain containers one after the other and waits for the postStart hook of each. It looks at the outcome of none: when the hook fails or gives up, when the image of the proxy is missing or the proxy is in back-off, the app is started all the same.

A gate (the command is wrapped) and a native sidecar stay closed.`},
		{Code: "hold-hides-ip", Severity: finding.Note, Title: "the pod has no IP in the API while a hold blocks",
			Explanation: `The pod's address reaches the API only when the kubelet has started all containers, and the hook blocks that. A control plane or a CNI that waits for the address before it lets the proxy get ready waits for ever.`},
		{Code: "hold-holds-nobody", Severity: finding.Warning, Title: "a postStart hold of the last container holds nobody",
			Explanation: `A hook holds the containers that are listed after its own. Those before run already.`},

		{Code: "sleep", Severity: finding.Warning, Title: "a command sleeps before it begins, in the hope that something is ready then",
			Explanation: `A work-around from before meshes could order containers. The time is a guess: too short on a bad day, too long on all others, at every start. In its place: outrider.dev/depends-on, which waits for what is really meant and is released in milliseconds.`},
		{Code: "health-loop", Severity: finding.Warning, Title: "a command asks a health port in a loop before it begins",
			Explanation: `A work-around from before meshes could order containers: until curl localhost:15020/healthz/ready; do sleep 1; done. It asks at intervals, ignores SIGTERM as PID 1, has no end, and is in every image. In its place: outrider.dev/depends-on.`},
		{Code: "post-start-probe", Severity: finding.Warning, Title: "an app's own postStart asks the proxy's port",
			Explanation: `A work-around from before Istio 1.7: a postStart httpGet on port 15020 of the app. A hook of a container runs beside its command, not before it. When it fails, the kubelet kills the container and starts it again, with back-off: the app gets its proxy by being restarted until it is there. In its place: outrider.dev/depends-on.`},

		{Code: "start-deadlock", Severity: finding.Error, Title: "a container waits for one that the kubelet starts only afterwards",
			Explanation: `Init containers run to their end before any other container starts, and a postStart that does not return keeps the kubelet from starting the next container of the list. One that waits, in its command or its hook, for a container that comes later waits for ever: the pod stays in Init or ContainerCreating, and nothing says why.`},
		{Code: "probe-deadlock", Severity: finding.Error, Title: "a sidecar's startup probe asks a container that starts only after it succeeds",
			Explanation: `The kubelet starts the containers after a sidecar (an init container with restartPolicy: Always) when its startup probe has succeeded. A probe that asks a later container never does.`},
		{Code: "killed-while-waiting", Severity: finding.Error, Title: "a probe kills a container that waits in its command",
			Explanation: `The kubelet probes a container from its start, and does not know that its command only waits so far. A startup or liveness probe that gives up before the wait is over restarts the container, which then waits from the beginning.`},
		{Code: "liveness-asks-proxy", Severity: finding.Warning, Title: "a liveness or startup probe asks the proxy instead of the app",
			Explanation: `A probe on 15020 or 15021 says how the proxy is. The kubelet kills the app for it: when the proxy is slow to start, restarts, or is upgraded. And an app that hangs is not noticed.`},

		{Code: "init-needs-network", Severity: finding.Warning, Title: "an init container calls others before the proxy runs",
			Explanation: `Init containers end before plain containers start. When the capture is written first, their connections are redirected to a proxy that is not there: refused, or parked until the pod gives up. A container that looks like a caller (by its program, an address in its arguments or environment) and comes before the proxy is reported.

With outrider.dev/depends-on.NAME: outrider-proxy the proxy becomes a sidecar that starts before it. Running it as the proxy's user (1337) gives it a network too, but past the mesh.`},

		{Code: "job-never-ends", Severity: finding.Error, Title: "a pod that should complete has a container that does not end",
			Explanation: `A pod is done when all its plain containers have ended. A proxy or a server among them does not end by itself, so the Job runs for ever. As a sidecar (an init container with restartPolicy: Always, Kubernetes 1.29 and later) the kubelet ends it after the others. Outrider's own proxy ends by itself, too, once the gates of all others say that their commands have ended for good; a container whose command is not in the pod spec has no gate. A container that others wait for until it is healthy, by their gates and its own, ends with them.`},

		{Code: "grace-too-short", Severity: finding.Warning, Title: "the grace period is shorter than what is to be done in it",
			Explanation: `terminationGracePeriodSeconds (30 if nothing is said) counts from the deletion, preStop hooks included. When it is over, everything that still runs is killed: after a preStop that takes as long nothing but 2 s are left for the app's own stop and the proxy's drain (terminationDrainDuration, 5s if nothing is said).`},

		{Code: "proxy-uid", Severity: finding.Warning, Title: "a container runs as the proxy's user or group",
			Explanation: `Capture tells the proxy's own connections by their user or group (1337; 2102 in Linkerd; 5678 in Kuma). An app that runs as one of the two goes past the mesh: no mutual TLS, no policy, no routing.`},
		{Code: "pod-security", Severity: finding.Error, Title: "the namespace's pod security refuses the injected pod",
			Explanation: `Writing capture rules needs NET_ADMIN in one container that ends at once. The levels baseline and restricted of pod security refuse that, in init containers too. The refusal comes when the pod is made, after the Deployment was accepted: it just has no pods.`},

		{Code: "injection-refused", Severity: finding.Error, Title: "injection refuses the pod",
			Explanation: `It asks for something that cannot be had: a value that is none, a mechanism that does not fit, a port that is the mesh's. Nothing is injected by halves, so the pod is not made.`},

		{Code: "mesh-port", Severity: finding.Warning, Title: "a container declares a port on which the proxy listens",
			Explanation: `All containers of a pod share its network: of two that listen on one port the second fails with "address already in use". Outrider's proxy has 15000, 15001, 15006, 15007, 15016, 15021 and 15090, and the agent 15020, or what status.sidecar.istio.io/port says. A port that is declared only so that a monitor finds the proxy's metrics does no harm.`},

		{Code: "annotation-no-effect", Severity: finding.Warning, Title: "an annotation does nothing",
			Explanation: `Somebody wrote it for a reason, and what they wanted is not so: the name is not the one that is read, the value is none that it takes, or another setting is more specific.`},
		{Code: "annotation-misplaced", Severity: finding.Warning, Title: "an annotation for pods is on the object that makes them",
			Explanation: `Injection sees the pod. Annotations of a Deployment, a Job or a CronJob are not copied to it: they belong under the template's metadata.`},
		{Code: "label-no-effect", Severity: finding.Warning, Title: "a label that asks for injection does nothing",
			Explanation: `The value must be "true" or "false", and a pod with hostNetwork: true is never injected.`},

		{Code: "undeclared-server-first", Severity: finding.Warning, Title: "a port of a protocol in which the server speaks first does not declare it",
			Explanation: `The proxy finds out the protocol of an undeclared port from the client's first bytes, and waits up to 200 ms for them. In MySQL, SMTP, FTP, SSH, POP3, IMAP and NATS the client waits too, for the server's greeting. Declare the port: appProtocol: mysql, or a name that begins with mysql.`},

		{Code: "unknown-field", Severity: finding.Warning, Title: "a field that pods do not have",
			Explanation: `Misspelt, a level too deep, or newer than the Kubernetes version that this Outrider knows. The API server leaves unknown fields out.`},
		{Code: "bad-annotation", Severity: finding.Error, Title: "an annotation about the order cannot be understood",
			Explanation: `outrider.dev/depends-on is YAML: CONTAINER: {DEPENDENCY: CONDITION}; outrider.dev/depends-on.CONTAINER is a list with commas: DEPENDENCY or DEPENDENCY=CONDITION; outrider.dev/start is gate, native, hold or off.`},
		{Code: "cycle", Severity: finding.Error, Title: "containers wait for one another",
			Explanation: `None of them ever starts. One of the edges must go.`},
		{Code: "unknown-name", Severity: finding.Error, Title: "an edge names a container that the pod does not have",
			Explanation: `Names of dependencies are those of the pod's containers, or outrider-proxy.`},
		{Code: "unknown-word", Severity: finding.Error, Title: "a word of the plan is unknown",
			Explanation: `Conditions are started, healthy and completed.`},
		{Code: "bad-name", Severity: finding.Error, Title: "a container has a name that the API refuses",
			Explanation: `Names are lower-case letters, digits and dashes.`},
		{Code: "duplicate-name", Severity: finding.Error, Title: "two containers have one name",
			Explanation: `The API server refuses such a pod.`},
		{Code: "duplicate-edge", Severity: finding.Warning, Title: "a container waits for another one twice",
			Explanation: `Only one of the two can be meant.`},
		{Code: "bad-timeout", Severity: finding.Error, Title: "a time-out is negative",
			Explanation: `Leave it out to wait without an end.`},
		{Code: "self-waiting-probe", Severity: finding.Error, Title: "a container waits for the health of one whose health asks for the first",
			Explanation: `A sidecar whose readiness covers the app can never be ready before the app runs. Wait for "started", or let the probe leave the app out.`},
		{Code: "cannot-be-kept", Severity: finding.Error, Title: "no mechanism can keep an edge in this pod",
			Explanation: `The kubelet comes to the dependency only after the container that waits for it.`},
		{Code: "never-healthy", Severity: finding.Error, Title: "a container waits for the health of one that never says that it is healthy",
			Explanation: `Health comes from a startup or readiness probe, a hook, or a report. Give the dependency one, or wait for "started".`},
		{Code: "never-completes", Severity: finding.Error, Title: "a container waits for the end of one that the kubelet always restarts",
			Explanation: `Only init containers, and containers of pods that may end (restartPolicy: OnFailure or Never), complete.`},
		{Code: "mechanism-unfit", Severity: finding.Error, Title: "the mechanism of an edge cannot keep it",
			Explanation: `outrider plan --advise compares those that can.`},
		{Code: "star-leaves-out", Severity: finding.Note, Title: "\"*\" does not cover all containers",
			Explanation: `Some cannot be on that side of the edge, such as init containers that end before the other one starts.`},
	}
	for i := range all {
		all[i].Doc = "lint.md#" + string(all[i].Code)
	}
	return all
}()
