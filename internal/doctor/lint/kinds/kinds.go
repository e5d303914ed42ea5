// Package kinds lists the kinds of problems that lint can find. Diagnose reports some of them too, with the same
// codes, after they have happened.
package kinds

import (
	"fmt"
	"slices"

	"outrider.dev/internal/base/finding"
)

// All returns every kind of finding of lint, by theme.
func All() []finding.Kind { return slices.Clone(all) }

// Of returns the kind with a code. It fails if there is none.
func Of(code string) (finding.Kind, error) {
	i := slices.IndexFunc(all, func(k finding.Kind) bool { return string(k.Code) == code })
	if i < 0 {
		return finding.Kind{}, fmt.Errorf("%q is no code", code)
	}
	return all[i], nil
}

// all lists the kinds. Codes are stable: if a code is renamed, its old name moves to the table of old codes in
// package finding, and never gets another meaning.
var all = func() []finding.Kind {
	list := []finding.Kind{
		{Code: "proxy-not-awaited", Severity: finding.Warning, Title: "nothing makes a container wait for the proxy, and capture is on",
			Explanation: `Every connection of the pod is redirected to the proxy from the start, and the proxy needs a certificate and its configuration before it listens. An app that starts in the meantime gets "Connection refused", fails, is restarted, and works at the second attempt.

Injection makes every container wait for the proxy, unless the pod turns that off (outrider.dev/start: off, holdApplicationUntilProxyStarts: false) or names the containers that wait. The proxy of another mesh does not delay other containers by itself.`},
		{Code: "first-start-only", Severity: finding.Note, Title: "the order is kept at the first start only, since the command is not in the pod spec",
			Explanation: `A gate wraps the container's command, and keeps the order at every start. If only the image has the command, injection uses a native sidecar instead, by which the kubelet orders the first start, but no restart.`},

		{Code: "hold-fails-open", Severity: finding.Warning, Title: "a postStart hold lets the app start without its proxy",
			Explanation: `The kubelet starts the plain containers one after the other and waits for the postStart hook of each. It ignores how the hook ends: the app starts even if the hook fails or gives up, if the image of the proxy is missing, or if the proxy is in back-off.

A gate (the command is wrapped) and a native sidecar stay closed.`},
		{Code: "hold-hides-ip", Severity: finding.Note, Title: "the pod has no IP in the API while a hold blocks",
			Explanation: `The pod's address reaches the API only when the kubelet has started all containers, and the hook blocks that. A control plane or a CNI that needs the address before the proxy can get ready waits for ever.`},
		{Code: "hold-on-last-container", Severity: finding.Warning, Title: "a postStart hold of the last container has no effect",
			Explanation: `A hook delays the containers that are listed after its own. The containers before it run already.`},

		{Code: "fixed-sleep", Severity: finding.Warning, Title: "a command sleeps before it begins, instead of waiting for a dependency",
			Explanation: `A work-around from before meshes could order containers. The time is a guess: too short on a bad day, too long on all others, at every start. outrider.dev/depends-on waits for the dependency itself and ends within milliseconds.`},
		{Code: "health-loop", Severity: finding.Warning, Title: "a command polls a health port before it begins",
			Explanation: `A work-around from before meshes could order containers: until curl localhost:15020/healthz/ready; do sleep 1; done. It polls at intervals, ignores SIGTERM as PID 1, has no limit, and must be in every image.`},
		{Code: "post-start-probe", Severity: finding.Warning, Title: "an app's own postStart probes the proxy's port",
			Explanation: `A work-around from before Istio 1.7: a postStart httpGet on port 15020 of the app. A hook of a container runs concurrently with its command, not before it. When it fails, the kubelet kills the container and starts it again, with back-off: the app is restarted until its proxy is ready.`},

		{Code: "start-deadlock", Severity: finding.Error, Title: "a container waits for one that the kubelet starts only afterwards",
			Explanation: `Init containers run to their end before any other container starts, and a postStart that does not return keeps the kubelet from starting the next container of the list. One that waits, in its command or its hook, for a container that comes later waits for ever: the pod stays in Init or ContainerCreating, and nothing shows why.`},
		{Code: "probe-deadlock", Severity: finding.Error, Title: "a sidecar's startup probe needs a container that starts only after it succeeds",
			Explanation: `The kubelet starts the containers after a sidecar (an init container with restartPolicy: Always) when its startup probe has succeeded. A probe of a later container never does.`},
		{Code: "probe-host-loopback", Severity: finding.Error, Title: "a probe or hook connects to localhost, which is the node's",
			Explanation: `The kubelet makes the connections of probes and hooks (httpGet, tcpSocket) in the node's network. host: localhost is the node itself, where nothing listens, or another program. Leave host out: the kubelet then connects to the pod's IP.`},
		{Code: "killed-while-waiting", Severity: finding.Error, Title: "a probe kills a container that waits in its command",
			Explanation: `The kubelet probes a container from its start, also while its command still waits. A startup or liveness probe that gives up before the wait is over restarts the container, which then waits from the beginning.`},
		{Code: "liveness-depends-on-proxy", Severity: finding.Warning, Title: "a liveness or startup probe checks the proxy instead of the app",
			Explanation: `A probe on 15020 or 15021 reports the health of the proxy. The kubelet then kills the app when the proxy is slow to start, restarts, or is upgraded, and does not notice an app that hangs.`},

		{Code: "init-needs-network", Severity: finding.Warning, Title: "an init container connects to others before the proxy runs",
			Explanation: `Init containers end before plain containers start. If the capture is written before them, their connections are redirected to a proxy that does not run yet: they are refused, or parked until the pod gives up. A container is reported if it comes before the proxy and looks like a client, by its program or by an address in its arguments or environment.

An init container with the proxy's user (1337) has a network, but its connections bypass the mesh.`},

		{Code: "init-never-ends", Severity: finding.Error, Title: "an init container is a server that does not end",
			Explanation: `Init containers run one after the other, each to its end. A proxy or a server among them keeps the pod in Init for ever. As a sidecar it has restartPolicy: Always (Kubernetes 1.29 and later); an API server or a webhook that does not know the field drops it silently. A container is reported if its name, its program or its image is a known server's, or if it has probes.`},
		{Code: "sidecar-not-awaited", Severity: finding.Warning, Title: "containers start before the sidecar that serves them is ready",
			Explanation: `The kubelet starts what is listed after a sidecar (an init container with restartPolicy: Always) as soon as the sidecar runs. Only a startup probe, or a postStart hook that blocks, delays it; a readiness probe delays no container. A sidecar is reported if it has a readiness probe, declares a port that is not for monitoring, or is a known server.`},
		{Code: "sidecar-slow-start", Severity: finding.Warning, Title: "a sidecar's startup probe runs every 5 s or more",
			Explanation: `The kubelet probes at fixed ticks and starts the next container after the first success, so each start takes up to one period longer than the sidecar needs: up to 10 s with the default period. The fix sets periodSeconds: 1 and keeps the limit.`},
		{Code: "sibling-not-awaited", Severity: finding.Warning, Title: "an app connects to a helper in its pod that starts at the same time",
			Explanation: `Plain containers do not wait for each other. An app that connects to a database, a broker or a proxy of its own pod at localhost fails at its start whenever the helper starts later. Exporters, agents and HTTP clients are not reported, because they connect again.`},
		{Code: "wait-program", Severity: finding.Warning, Title: "a program waits in the command of an app",
			Explanation: `A work-around from before meshes could order containers: wait-for-it.sh, wait-for, dockerize -wait, scuttle. wait-for-it starts the command after 15 s, whether the port is open or not; dockerize ends the container after 10 s; scuttle polls.`},
		{Code: "shell-without-exec", Severity: finding.Warning, Title: "a shell stays the parent of its program and does not forward signals",
			Explanation: `As PID 1 a shell ignores SIGTERM and does not forward it, so at each stop the program is killed when the grace period is over. Under tini or dumb-init the shell gets the signal and ends at once: then the program is killed without any time to stop. bash and busybox replace themselves by the last simple command of a script (busybox does not if an end of line follows); dash, which is sh in Debian and Ubuntu, does not. Not reported: a script with trap, a preStop that ends the program, pods that complete.`},
		{Code: "post-start-network", Severity: finding.Warning, Title: "a postStart hook connects to others",
			Explanation: `If the hook fails, the kubelet kills the container, and starts it again with back-off. It runs at the same time as the container's command.`},

		{Code: "job-never-ends", Severity: finding.Error, Title: "a pod that should complete has a container that does not end",
			Explanation: `A pod is done when all its plain containers have ended. A proxy or a server among them does not end by itself, so the Job runs for ever. As a sidecar (an init container with restartPolicy: Always, Kubernetes 1.29 and later) the kubelet ends it after the others. Outrider's own proxy also ends by itself, once the gates of all others report that their commands have ended for good; a container whose command is not in the pod spec has no gate. A container that others wait for until it is healthy, by their gates and its own, ends with them.`},

		{Code: "grace-too-short", Severity: finding.Warning, Title: "the grace period is shorter than the stop takes",
			Explanation: `terminationGracePeriodSeconds (default 30) counts from the deletion, preStop hooks included. When it is over, everything that still runs is killed: a preStop that takes all of it leaves 2 s for the app's own stop and the proxy's drain (terminationDrainDuration, default 5s).`},

		{Code: "proxy-uid", Severity: finding.Warning, Title: "a container runs as the proxy's user or group",
			Explanation: `Capture recognises the proxy's own connections by their user or group (1337; 2102 in Linkerd; 5678 in Kuma). An app that runs as that user or group bypasses the mesh: no mutual TLS, no policy, no routing.`},
		{Code: "pod-security", Severity: finding.Error, Title: "the namespace's pod security refuses the injected pod",
			Explanation: `Writing capture rules needs NET_ADMIN in one container that ends at once. The levels baseline and restricted of pod security refuse that, in init containers too. Where the nodes capture (docs/node.md) no container needs it. The refusal comes when the pod is created, after the Deployment was accepted: the Deployment then has no pods.`},

		{Code: "injection-refused", Severity: finding.Error, Title: "injection refuses the pod",
			Explanation: `The pod requests something unsupported: an invalid value, a mechanism that does not fit, or a port that the mesh uses. Injection is all or nothing, so the pod is not created.`},

		{Code: "proxy-port-conflict", Severity: finding.Warning, Title: "a container declares a port on which the proxy listens",
			Explanation: `All containers of a pod share its network: of two that listen on one port the second fails with "address already in use". Outrider's proxy has 15000, 15001, 15006, 15007, 15016, 15021 and 15090, and the agent 15020, or the value of status.sidecar.istio.io/port. A port that is declared only so that a monitor finds the proxy's metrics does no harm.`},

		{Code: "annotation-no-effect", Severity: finding.Warning, Title: "an annotation does nothing",
			Explanation: `The annotation is ignored: injection does not read its name, its value is invalid, or a more specific setting wins. The fix renames a misspelt annotation, if its value is valid for the name that was probably meant, and turns sidecar.istio.io/inject and outrider.dev/inject into labels. No fix deletes an annotation.`},
		{Code: "annotation-misplaced", Severity: finding.Warning, Title: "an annotation for pods is on the object that creates them",
			Explanation: `Injection sees only the pod. Annotations of a Deployment, a Job or a CronJob are not copied to it: they belong under the template's metadata.`},
		{Code: "label-no-effect", Severity: finding.Warning, Title: "a label for injection does nothing",
			Explanation: `The label is Istio's or Outrider's, and injection does not read it: its name is misspelt, it should be an annotation, or it is about a feature that Outrider does not have. The value of sidecar.istio.io/inject and outrider.dev/inject must be "true" or "false", and a pod with hostNetwork: true is never injected.`},

		{Code: "policy-not-enforced", Severity: finding.Error, Title: "an object that forbids something is not enforced",
			Explanation: `The object is of a kind that another mesh enforces, and Outrider does not: RequestAuthentication, EnvoyFilter, WasmPlugin, BackendTLSPolicy, or a Sidecar with outboundTrafficPolicy REGISTRY_ONLY. Pods with Outrider's proxy allow what it forbids. An AuthorizationPolicy is enforced, and reported if a part of it is not enforced as it is written: a rule that cannot be evaluated allows nothing, or denies more; a policy in istio-system applies to that namespace only; a policy with targetRefs of a waypoint applies to nothing. It is reported if such a pod is in its namespace and has the labels of its selector.`},
		{Code: "unsupported-kind", Severity: finding.Warning, Title: "an object has no effect, because its kind is not supported",
			Explanation: `The object is of a kind that another mesh supports, and Outrider does not: ServiceEntry, Sidecar, DestinationRule, VirtualService, Gateway, WorkloadEntry, WorkloadGroup, ProxyConfig and Telemetry of Istio, and the TCPRoute or TLSRoute of a Service. A VirtualService is reported with the equivalent HTTPRoute, if there is one, and a DestinationRule with the equivalent BackendPolicy. It is reported if a pod with Outrider's proxy is in its namespace.`},

		{Code: "object-refused", Severity: finding.Error, Title: "outriderd does not accept an object",
			Explanation: `A field of a Service, an EndpointSlice, a PeerAuthentication, an AuthorizationPolicy, a Host, a BackendPolicy or a route has a value that outriderd does not accept. The API server refuses it too, or has another version of the CustomResourceDefinition; a folder of files has no API server. An AuthorizationPolicy then allows nothing, or denies everything, for the pods that it selects; for any other object outriderd keeps using the previous version.`},
		{Code: "selector-empty", Severity: finding.Warning, Title: "a policy applies to all pods, because its selector has no label",
			Explanation: `selector: {} and matchLabels: {} select every pod of the namespace, and from the root namespace every pod of the mesh, as if there were no selector. A policy that denies then denies requests to all of them.`},

		{Code: "value-never-matches", Severity: finding.Warning, Title: "a policy has a value that no request has",
			Explanation: `An AuthorizationPolicy compares values with these properties of requests: methods in capitals (GET; they have no case in methods of DENY and notMethods of ALLOW), paths that begin with / and end before a ?, without . and .. between slashes and encoded as a proxy writes them (where a match denies, in any encoding), hosts without scheme and path and with an IPv6 address in brackets, principals without a scheme (cluster.local/ns/shop/sa/web). A value of another form is accepted, but no request has it: a rule with it denies nothing, or allows nothing.`},

		{Code: "undeclared-server-first", Severity: finding.Warning, Title: "a port of a server-first protocol does not declare its protocol",
			Explanation: `The proxy detects the protocol of an undeclared port from the client's first bytes, and waits up to 200 ms for them. With MySQL, SMTP, FTP, SSH, POP3, IMAP and NATS the client waits too, for the server's greeting; on a port that is declared as HTTP it waits for ever.`},

		{Code: "local-service-gaps", Severity: finding.Warning, Title: "a Service takes calls from its own node alone, and its pods are not on each node",
			Explanation: `With internalTrafficPolicy: Local the clients of a Service call the endpoints on their own node, and no others, by kube-proxy and by a proxy alike. On a node without an endpoint, and on each node while its only one restarts, calls fail. It is meant for agents of a DaemonSet without a nodeSelector or nodeAffinity. An endpoint without nodeName is on no node. trafficDistribution: PreferSameNode prefers the own node, and goes on to others.`},
		{Code: "service-field-ignored", Severity: finding.Note, Title: "a field of a Service has no effect, or not for all clients",
			Explanation: `sessionAffinity: ClientIP, internalTrafficPolicy: Local and trafficDistribution are kept by the proxies of clients, for a Service with an address of its own. A headless Service and an ExternalName have none: DNS gives their clients all addresses. With internalTrafficPolicy: Local trafficDistribution has no effect. Connections from outside of the cluster come by the nodes, where kube-proxy keeps a table of clients for each node, and requests by a gateway all come from the gateway.`},

		{Code: "unknown-field", Severity: finding.Warning, Title: "an unknown field of a pod",
			Explanation: `The field is misspelt, at the wrong level, or newer than the Kubernetes version that this Outrider supports. The API server drops unknown fields.`},
		{Code: "invalid-annotation", Severity: finding.Error, Title: "an annotation about the order is invalid",
			Explanation: `outrider.dev/depends-on is YAML: CONTAINER: {DEPENDENCY: CONDITION}; outrider.dev/depends-on.CONTAINER is a list with commas: DEPENDENCY or DEPENDENCY=CONDITION; outrider.dev/start is gate, native, hold or off.`},
		{Code: "pod-too-large", Severity: finding.Error, Title: "a pod has more containers, edges or annotations than are allowed",
			Explanation: `A pod may have 300 containers and 256 KiB of annotations, which is the API server's limit. The order that injection writes takes space in the annotations too: about 16 bytes for each edge, except for edges to init containers that complete.`},
		{Code: "cycle", Severity: finding.Error, Title: "containers wait for one another",
			Explanation: `None of them ever starts. Remove one of the edges.`},
		{Code: "unknown-container", Severity: finding.Error, Title: "an edge names a container that the pod does not have",
			Explanation: `A dependency is named by the name of a container of the pod, or outrider-proxy.`},
		{Code: "unsupported-value", Severity: finding.Error, Title: "a condition of the plan is unknown",
			Explanation: `Conditions are started, healthy and completed.`},
		{Code: "invalid-name", Severity: finding.Error, Title: "a container has a name that the API refuses",
			Explanation: `Names are lower-case letters, digits and dashes.`},
		{Code: "duplicate-name", Severity: finding.Error, Title: "two containers have the same name",
			Explanation: `The API server refuses such a pod.`},
		{Code: "duplicate-edge", Severity: finding.Warning, Title: "a container waits for another one twice",
			Explanation: `Remove one of the two.`},
		{Code: "invalid-timeout", Severity: finding.Error, Title: "a timeout is negative",
			Explanation: `Leave it out to wait without a limit.`},
		{Code: "probe-cycle", Severity: finding.Error, Title: "a container waits for another one whose probe needs the first",
			Explanation: `A sidecar whose readiness includes that of the app can never be ready before the app runs. Wait for "started", or exclude the app from the probe.`},
		{Code: "unsatisfiable-edge", Severity: finding.Error, Title: "no mechanism can keep an edge in this pod",
			Explanation: `The kubelet starts the dependency only after the container that waits for it.`},
		{Code: "never-healthy", Severity: finding.Error, Title: "a container waits for the health of one that never reports it",
			Explanation: `Health comes from a startup or readiness probe, a hook, or a report. Give the dependency one, or wait for "started".`},
		{Code: "never-completes", Severity: finding.Error, Title: "a container waits for the end of one that the kubelet always restarts",
			Explanation: `Only init containers, and containers of pods that may end (restartPolicy: OnFailure or Never), complete.`},
		{Code: "unsuitable-mechanism", Severity: finding.Error, Title: "the mechanism of an edge cannot keep it",
			Explanation: `outrider plan --advise compares the mechanisms that can.`},
		{Code: "wildcard-incomplete", Severity: finding.Note, Title: "\"*\" does not cover all containers",
			Explanation: `Some containers cannot be on that side of the edge, such as init containers that end before the other container starts.`},
	}
	for i := range list {
		list[i].Doc = "findings/" + string(list[i].Code) + ".md"
	}
	return list
}()
