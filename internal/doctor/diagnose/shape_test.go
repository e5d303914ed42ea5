package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// podWith returns the object of a pod of namespace ns: lines of metadata and spec, and its status.
func podWith(meta, spec, status string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p-1, namespace: ns, creationTimestamp: \"2026-03-05T10:00:00Z\"" + meta + "}\nspec: {" + spec + "}\nstatus: {startTime: \"2026-03-05T10:00:00Z\"" + status + "}\n"
}

// outcomeOf returns the verdict, the code and the confidence of the first finding, and the sentence.
func outcomeOf(r result.Report) string {
	if len(r.Findings) == 0 {
		return string(r.Verdict) + ": " + r.Sentence
	}
	return string(r.Verdict) + " " + string(r.Findings[0].Code) + " " + string(r.Findings[0].Confidence) + ": " + r.Sentence
}

// Without a log the place of an init container among the others, and what the capture takes, is all there is to judge by.
func TestInitContainersBeforeTheProxy(t *testing.T) {
	const (
		check   = `{name: istio-validation, image: istio/proxyv2:1.22.0, args: [istio-iptables, -p, "15001", -u, "1337", -i, "*", --run-validation, --skip-rule-apply]}`
		writes  = `{name: istio-init, image: istio/proxyv2:1.22.0, args: [istio-iptables, -p, "15001", -u, "1337"]}`
		load    = `{name: load, image: example.com/load:4}`
		exempt  = `{name: load, image: example.com/load:4, securityContext: {runAsUser: 1337}}`
		native  = `{name: istio-proxy, image: istio/proxyv2:1.22.0, restartPolicy: Always}`
		plain   = `{name: istio-proxy, image: istio/proxyv2:1.22.0}`
		fails   = `{name: load, ready: false, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2, reason: Error, startedAt: "2026-03-05T10:04:00Z", finishedAt: "2026-03-05T10:04:07Z"}}}`
		once    = `{name: load, ready: false, restartCount: 0, state: {terminated: {exitCode: 2, reason: Error, startedAt: "2026-03-05T10:04:00Z", finishedAt: "2026-03-05T10:04:07Z"}}}`
		runs    = `{name: load, ready: false, restartCount: 0, state: {running: {startedAt: "2026-03-05T10:00:02Z"}}}`
		waiting = `{name: %, ready: false, restartCount: 0, state: {waiting: {reason: PodInitializing}}}`
	)
	pod := func(inits, containers, status string) string {
		return podWith(`, annotations: {sidecar.istio.io/status: "{}"}`, "restartPolicy: Always, initContainers: ["+inits+"], containers: ["+containers+"{name: app, image: i}]", ", phase: Pending, conditions: [{type: Initialized, status: \"False\", lastTransitionTime: \"2026-03-05T10:20:00Z\"}], initContainerStatuses: ["+status+"], containerStatuses: ["+strings.ReplaceAll(waiting, "%", "app")+"]")
	}
	refused := map[string]string{"load.log": "2026-03-05T10:00:03.100Z level=error msg=\"load failed:\"\n  cause=\n  | Get \"http://store.x.svc:8081/a\": dial tcp 10.9.0.4:8081: connect: connection refused\n"}
	for name, c := range map[string]struct { // in any order: subtests
		pod, want string
		files     map[string]string
	}{
		"a check, and a plain proxy":                   {pod(check+","+load, plain+",", fails), "undecided init-needs-network possible", nil},
		"before a native proxy":                        {pod(load+","+check+","+native, "", fails), "undecided init-needs-network possible", nil},
		"it runs for twenty minutes":                   {pod(load+","+check+","+native, "", runs), "undecided init-needs-network possible", nil},
		"it runs, and has a log":                       {pod(load+","+check+","+native, "", runs), "found state-not-known", map[string]string{"load.log": "2026-03-05T10:00:03Z part 3 of 90\n"}},
		"after a native proxy":                         {pod(check+","+native+","+load, "", fails), "undecided app-crash possible", nil},
		"before the rules are written":                 {pod(load+","+writes, plain+",", fails), "undecided app-crash possible", nil},
		"its user is exempt":                           {pod(check+","+exempt, plain+",", fails), "undecided app-crash possible", nil},
		"it failed once":                               {pod(check+","+load, plain+",", once), "undecided app-crash possible", nil},
		"its log has the call, on a line that goes on": {pod(load+","+check+","+native, "", runs), "found init-needs-network certain", refused},
		"its log says another reason":                  {pod(check+","+load, plain+",", fails), "found app-crash likely", map[string]string{"load.previous.log": "Error: invalid schema version 12\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": c.pod}
			for name, text := range c.files {
				files[name] = text
			}
			if got := outcomeOf(diagnoseFiles(t, files)); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// An application that failed before its proxy was ready, and not afterwards, may have met the race: more is not known without
// its log.
func TestAnEndBeforeTheProxyIsReady(t *testing.T) {
	const (
		spec  = `restartPolicy: Always, initContainers: [{name: linkerd-init, image: cr.l5d.io/linkerd/proxy-init:v2.4.2, args: [--incoming-proxy-port, "4143", --outgoing-proxy-port, "4140", --proxy-uid, "2102"]}], containers: [{name: api, image: i}, {name: linkerd-proxy, image: "cr.l5d.io/linkerd/proxy:edge-25.4.4"}]`
		proxy = `{name: linkerd-proxy, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-05T10:00:04Z"}}}`
		ready = "2026-03-05T10:00:09.500Z [ 5.1s] INFO ThreadId(02) linkerd_app: Certified identity id=x\n"
	)
	app := func(exit, ended, reason, now string) string {
		return podWith(`, annotations: {linkerd.io/proxy-version: edge-25.4.4}`, spec, `, phase: Running, containerStatuses: [{name: api, ready: true, restartCount: 1, `+now+`, lastState: {terminated: {exitCode: `+exit+`, reason: `+reason+`, startedAt: "2026-03-05T10:00:03Z", finishedAt: "2026-03-05T10:`+ended+`Z"}}}, `+proxy+`]`)
	}
	const well = `state: {running: {startedAt: "2026-03-05T10:00:30Z"}}`
	for name, c := range map[string]struct { // in any order: subtests
		pod, want, never string
		files            map[string]string
	}{
		"before":                      {app("3", "00:06", "Error", well), "undecided startup-race possible", "", map[string]string{"linkerd-proxy.log": ready}},
		"before, by an abort":         {app("134", "00:06", "Error", well), "undecided startup-race possible", "", map[string]string{"linkerd-proxy.log": ready}},
		"in the second of its start":  {app("3", "00:04", "Error", well), "undecided startup-race possible", "", nil},
		"after":                       {app("3", "00:12", "Error", well), "undecided app-crash possible", "startup-race", map[string]string{"linkerd-proxy.log": ready}},
		"no command":                  {app("127", "00:06", "Error", well), "undecided app-crash possible", "startup-race", map[string]string{"linkerd-proxy.log": ready}},
		"out of memory":               {app("137", "00:06", "OOMKilled", well), "found out-of-memory certain", "startup-race", map[string]string{"linkerd-proxy.log": ready}},
		"by a signal":                 {app("143", "00:06", "Error", well), "undecided app-crash possible", "startup-race", map[string]string{"linkerd-proxy.log": ready}},
		"its log says another reason": {app("3", "00:06", "Error", well), "found app-crash likely", "startup-race", map[string]string{"linkerd-proxy.log": ready, "api.previous.log": "FATAL no field of that name\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": c.pod}
			for name, text := range c.files {
				files[name] = text
			}
			got := outcomeOf(diagnoseFiles(t, files))
			if !strings.HasPrefix(got, c.want) || c.never != "" && strings.Contains(got, c.never) {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// A container that is killed when its grace period is over has not run out of memory, and the way to mend it depends on why it
// did not end.
func TestKilledWhenTheGracePeriodIsOver(t *testing.T) {
	pod := func(container, exit, reason, ended string) string {
		return podWith(`, deletionTimestamp: "2026-03-05T11:00:40Z", deletionGracePeriodSeconds: 40`, "restartPolicy: Always, terminationGracePeriodSeconds: 40, containers: [{name: web, image: i"+container+"}]",
			`, phase: Running, containerStatuses: [{name: web, ready: false, restartCount: 0, state: {terminated: {exitCode: `+exit+`, reason: `+reason+`, startedAt: "2026-03-05T10:00:02Z", finishedAt: "2026-03-05T11:00:`+ended+`Z"}}}]`)
	}
	for name, c := range map[string]struct{ pod, want, says string }{ // in any order: subtests
		"a shell in front":               {pod(`, command: [bash, -c, "prepare; serve --all; echo done"]`, "137", "Error", "40"), "found shell-without-exec likely", "passes it on"},
		"a shell that traps":             {pod(`, command: [bash, -c, "trap stop TERM; serve & wait"]`, "137", "Error", "40"), "found grace-too-short likely", "did not end within"},
		"a shell that is replaced":       {pod(`, command: [sh, -c, "prepare && exec serve"]`, "137", "Error", "41"), "found grace-too-short likely", "did not end within"},
		"a hook":                         {pod(`, lifecycle: {preStop: {sleep: {seconds: 60}}}`, "137", "Error", "41"), "found grace-too-short likely", "its preStop hook counts"},
		"killed long before":             {pod("", "137", "Error", "09"), "nothing", ""},
		"out of memory at the end of it": {pod("", "137", "OOMKilled", "40"), "found out-of-memory certain", ""},
		"it ended":                       {pod("", "0", "Completed", "12"), "nothing", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcomeOf(diagnoseFiles(t, map[string]string{"pod.yaml": c.pod})); !strings.HasPrefix(got, c.want) || !strings.Contains(got, c.says) {
				t.Errorf("%s; want %s, %s", got, c.want, c.says)
			}
		})
	}
}

// A helper that runs on keeps a pod from its end, also where the work failed, or another helper after it.
func TestAHelperThatStaysAfterAFailure(t *testing.T) {
	pod := func(policy, work, export string) string {
		return podWith(`, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: sum-29545080, controller: true}]`, policy+`containers: [{name: work, image: i}, {name: export, image: j}, {name: istio-proxy, image: "istio/proxyv2:1.20.0"}]`,
			`, phase: Running, containerStatuses: [{name: work, restartCount: 0, state: `+work+`}, {name: export, restartCount: 0, state: `+export+`}, {name: istio-proxy, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-05T10:00:02Z"}}}], conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-03-05T10:30:00Z"}]`)
	}
	ended := func(exit, at string) string {
		return `{terminated: {exitCode: ` + exit + `, startedAt: "2026-03-05T10:00:03Z", finishedAt: "2026-03-05T10:` + at + `Z"}}`
	}
	const never, runs = "restartPolicy: Never, ", `{running: {startedAt: "2026-03-05T10:00:03Z"}}`
	for name, c := range map[string]struct{ pod, want, says, not string }{ // in any order: subtests
		"a helper failed after the work": {pod(never, ended("0", "05:00"), ended("1", "05:30")), "found job-never-ends", "its work is done", "besides"},
		"a failure, then the end of one": {pod(never, ended("0", "05:30"), ended("1", "05:00")), "undecided app-crash", "besides, istio-proxy runs on", "its work is done"},
		"the work failed":                {pod(never, ended("3", "05:00"), ended("1", "05:30")), "undecided app-crash", "besides, istio-proxy runs on, so that the pod does not end (with concurrencyPolicy: Forbid", ""},
		"the policy is not known":        {pod("", ended("0", "05:00"), ended("1", "05:30")), "found job-never-ends", "its work is done", ""},
		"it is restarted":                {pod("restartPolicy: OnFailure, ", ended("0", "05:00"), ended("1", "05:30")), "", "", "besides"},
		"another container still works":  {pod(never, ended("3", "05:00"), runs), "undecided app-crash", "", "besides"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcomeOf(diagnoseFiles(t, map[string]string{"pod.yaml": c.pod})); !strings.HasPrefix(got, c.want) || !strings.Contains(got, c.says) || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("%s; want %s, %s", got, c.want, c.says)
			}
		})
	}
}

// That nothing is wrong is not said of restarts that are not explained, and a wait that is over is told.
func TestNothingIsWrongNow(t *testing.T) {
	const spec = "nodeName: w1, restartPolicy: Always, containers: [{name: db, image: i}]"
	status := func(restarts string) string {
		return `, phase: Running, conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-03-05T10:08:00Z"}], containerStatuses: [{name: db, ready: true, restartCount: ` + restarts + `, state: {running: {startedAt: "2026-03-05T10:07:30Z"}}}]`
	}
	event := func(at, reason, message string) string {
		return "---\napiVersion: v1\nkind: Event\nmetadata: {name: e" + reason + strings.ToLower(at[3:]) + ", namespace: ns}\ninvolvedObject: {kind: Pod, name: p-1, namespace: ns}\nreason: " + reason + "\nmessage: '" + message + "'\nsource: {component: kubelet}\nfirstTimestamp: \"2026-03-05T10:" + at + "Z\"\nlastTimestamp: \"2026-03-05T10:" + at + "Z\"\ncount: 1\n"
	}
	r := diagnoseFiles(t, map[string]string{"pod.yaml": podWith("", spec, status("4"))})
	if strings.HasPrefix(r.Sentence, "nothing is wrong") || !strings.Contains(r.Sentence, "restarted 4 times") {
		t.Error(r.Sentence)
	}
	waited := event("00:02", "FailedMount", `MountVolume.MountDevice failed for volume "d": stage: volume is still staging`) + event("07:20", "Pulled", "Container image is there")
	r = diagnoseFiles(t, map[string]string{"pod.yaml": podWith("", spec, status("0")), "events.yaml": waited})
	if r.Verdict != result.Nothing || !strings.Contains(r.Sentence, "its first container started after 7 min 30 s") || !strings.Contains(r.Sentence, "still staging") {
		t.Error(outcomeOf(r))
	}
	r = diagnoseFiles(t, map[string]string{"pod.yaml": podWith("", spec, status("0")), "events.yaml": event("07:20", "Pulled", "Container image is there")})
	if strings.Contains(r.Sentence, "at its start") {
		t.Error(r.Sentence)
	}
}

// A race that a container got over is no cause of another end, so its remedy does not help against that.
func TestRemediesThatDoNotHelp(t *testing.T) {
	const pod = `restartPolicy: Always, initContainers: [{name: istio-init, image: "istio/proxyv2:1.22.3"}], containers: [{name: plan, image: i}, {name: istio-proxy, image: "istio/proxyv2:1.22.3"}]`
	r := diagnoseFiles(t, map[string]string{
		"pod.yaml": podWith(", labels: {pod-template-hash: abc}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: p-abc, controller: true}]", pod,
			`, phase: Running, containerStatuses: [{name: istio-proxy, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-05T10:00:05Z"}}}, {name: plan, ready: true, restartCount: 1, state: {running: {startedAt: "2026-03-05T10:40:05Z"}}, lastState: {terminated: {exitCode: 2, reason: Error, startedAt: "2026-03-05T10:00:04Z", finishedAt: "2026-03-05T10:40:03Z"}}}]`),
		"plan.previous.log": "2026-03-05T10:00:04.200Z dial tcp 10.7.7.7:6000: connect: connection refused, again in 3s\n2026-03-05T10:00:08.000Z connected\n2026-03-05T10:40:02.900Z FATAL plan: no depot of that name\n",
		"istio-proxy.log":   "2026-03-05T10:00:07.772155Z\tinfo\tEnvoy proxy is ready\n",
	})
	if len(r.Findings) < 2 || r.Findings[0].Code != "app-crash" || r.Findings[1].Patch != "" || r.Findings[1].Remedy.Command != "" || !strings.HasPrefix(r.Findings[1].Remedy.Sentence, "it is over") {
		t.Errorf("%+v", r.Findings)
	}
}
