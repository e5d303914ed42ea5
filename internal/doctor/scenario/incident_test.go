package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

// An incident is a simulated pod, and what a person would have of it.
type incident struct {
	pod   corev1.Pod
	began time.Time // the API server's creation of the pod
	out   simulate.Outcome
	runs  map[string][]simulatedRun
	fates map[string]fate // what ends the runs of a container by itself

	deletion *deletion // nil: it is not deleted
}

// A simulatedRun is one run of a container; it runs on if to is 0.
type simulatedRun struct {
	from, to time.Duration
	code     int32
	refused  []time.Duration // calls
	ready    time.Duration
	stopped  bool          // it had got SIGTERM
	told     time.Duration // when
}

func (r simulatedRun) ended() bool { return r.to != 0 }

// endedByCall reports whether a refused call ended the run.
func (r simulatedRun) endedByCall() bool { return slices.Contains(r.refused, r.to) }

// mayHaveEndedByCall reports whether the run ended so soon after a refused call that its log does not show another cause.
func (r simulatedRun) mayHaveEndedByCall() bool {
	return len(r.refused) > 0 && r.to-r.refused[len(r.refused)-1] < 6*time.Second
}

// A fate is a way in which a container ends by itself.
type fate struct {
	code   int32
	reason string
	says   string // last lines of its log
}

var fates = []fate{
	{1, "Error", "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:41 +0x1d"},
	{2, "Error", "Error: unknown flag: --worker-count"},
	{1, "Error", "Traceback (most recent call last):\n  File \"/app/main.py\", line 12, in <module>\n    load()\nKeyError: 'REGION'"},
	{137, "OOMKilled", ""},
	{139, "Error", "Segmentation fault (core dumped)"},
}

const meshedPod = `apiVersion: v1
kind: Pod
metadata: {name: shop-7c9d8f6b5-x2x4q, namespace: store, labels: {app: shop}}
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: %d
  nodeName: node-1
  initContainers:
  - name: istio-init
    image: docker.io/istio/proxyv2:1.24.3
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"]
    securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}, runAsUser: 0}
%s  containers:
%s`

// newIncident simulates a random pod of Istio in which some things fail. The application calls a database through the
// proxy when it starts. If the pod is to be deleted, its programs stop well or badly.
func newIncident(rng *rand.Rand, deleted bool) (*incident, error) {
	of := func(words ...string) string { return words[rng.IntN(len(words))] }
	const proxy = "    image: docker.io/istio/proxyv2:1.24.3\n    args: [proxy, sidecar]\n    securityContext: {runAsUser: 1337}\n"
	const probe = "{httpGet: {path: /healthz/ready, port: 15021}, periodSeconds: 1, failureThreshold: 600}\n"
	var init, plain string
	app := "  - {name: app, image: example.com/app:4}\n"
	if rng.IntN(3) == 0 {
		app += "  - {name: audit, image: example.com/audit:2}\n"
	}
	switch rng.IntN(5) {
	case 0:
		init = "  - name: istio-proxy\n    restartPolicy: Always\n" + proxy + "    startupProbe: " + probe
	case 1:
		plain = "  - name: istio-proxy\n" + proxy + "    lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}\n    readinessProbe: " + probe + app
	case 2:
		plain = "  - name: istio-proxy\n" + proxy + "    readinessProbe: " + probe + app
	default:
		plain = app + "  - name: istio-proxy\n" + proxy + "    readinessProbe: " + probe
	}
	if plain == "" {
		plain = app
	}
	if rng.IntN(3) == 0 {
		init += "  - {name: migrate, image: example.com/migrate:1}\n"
	}
	policy, grace := of("Always", "Always", "Always", "OnFailure", "Never"), 30
	if deleted {
		grace = []int{5, 30, 30, 60}[rng.IntN(4)]
	}
	objects, _, err := podfile.Parse("pod.yaml", fmt.Appendf(nil, meshedPod, policy, grace, init, plain))
	if err != nil {
		return nil, err
	}
	s, err := NewSubject(objects[0], 34)
	if err != nil {
		return nil, err
	}
	in := &incident{pod: objects[0].Pod, began: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC), fates: map[string]fate{}}
	b := in.behaviour(rng, s)
	if deleted {
		in.delete(rng, s, &b)
	}
	if in.out, err = simulate.Run(simulate.Scenario{Pod: s.pod, Plan: s.Plan, Behaviour: b}); err != nil {
		return nil, err
	}
	in.collect()
	return in, nil
}

func (in *incident) behaviour(rng *rand.Rand, s Subject) simulate.Behaviour {
	at := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(time.Millisecond)
	}
	b := simulate.Behaviour{Kubernetes: 34, Until: at(4*time.Second, 3*time.Minute), Begins: at(time.Millisecond, time.Second), Sandbox: at(100*time.Millisecond, time.Second),
		Containers: map[string]simulate.Container{}}
	for _, c := range s.Plan.Containers {
		one := simulate.Container{Image: at(time.Millisecond, time.Second), Healthy: at(100*time.Millisecond, 4*time.Second), Stops: at(time.Millisecond, 200*time.Millisecond)}
		switch {
		case c.Name == "migrate" && rng.IntN(4) == 0:
			one.Calls = []simulate.Call{{To: "istio-proxy", After: at(50*time.Millisecond, time.Second), Exits: true, Code: 1}}
			fallthrough
		case c.Kind == startup.Init:
			one.Ends = []simulate.End{{After: at(time.Second, 3*time.Second)}}
		case c.Name != "istio-proxy":
			one.Healthy = 0
			one.Calls = []simulate.Call{{To: "istio-proxy", After: at(50*time.Millisecond, 3*time.Second), Exits: rng.IntN(4) > 0, Code: 1}}
		}
		b.Containers[c.Name] = one
	}
	if rng.IntN(5) == 0 {
		one := b.Containers["istio-proxy"]
		one.Healthy = simulate.Forever
		b.Containers["istio-proxy"] = one
	}
	for range rng.IntN(3) {
		name := s.Names()[rng.IntN(len(s.Names()))]
		if name == "istio-init" && rng.IntN(4) > 0 {
			continue
		}
		one := b.Containers[name]
		switch rng.IntN(4) {
		case 0:
			one.MissingUntil = simulate.Forever
		default:
			f := fates[rng.IntN(len(fates))]
			in.fates[name] = f
			one.Ends = []simulate.End{{After: at(4*time.Second, 30*time.Second), Code: int(f.code)}}
			if rng.IntN(2) == 0 {
				one.Ends = append(one.Ends, simulate.End{After: simulate.Forever})
			}
		}
		b.Containers[name] = one
	}
	return b
}

// collect sorts the timeline by the runs of the containers.
func (in *incident) collect() {
	in.runs = map[string][]simulatedRun{}
	for _, e := range in.out.Timeline.Sorted() {
		all := in.runs[e.Container]
		last := len(all) - 1
		switch {
		case e.What == startup.IsStarted:
			in.runs[e.Container] = append(all, simulatedRun{from: e.At})
		case last < 0 || all[last].ended():
		case e.What == startup.IsRefused:
			all[last].refused = append(all[last].refused, e.At)
		case e.What == startup.IsHealthy:
			all[last].ready = e.At
		case e.What == startup.IsStopping:
			all[last].stopped, all[last].told = true, e.At
		case e.What == startup.IsCompleted, e.What == startup.HasFailed:
			all[last].to = e.At
			_, _ = fmt.Sscanf(e.Detail, "exit code %d", &all[last].code)
			if d := in.deletion; d != nil && all[last].stopped && all[last].code == 0 {
				all[last].code = d.manners[e.Container].code
			}
		}
	}
}

func (in *incident) at(d time.Duration) time.Time { return in.began.Add(d) }

// shown returns the runs of a container that its status has: the last two.
func (in *incident) shown(name string) []simulatedRun {
	all := in.runs[name]
	return all[max(0, len(all)-2):]
}

// truth returns the codes of the causes that the evidence shows, with the container where it matters.
func (in *incident) truth() map[string]bool {
	out := map[string]bool{}
	proxy := in.shown("istio-proxy")
	for name := range in.runs {
		for _, r := range in.shown(name) {
			ownEnd := r.ended() && r.code != 0 && !r.stopped && !r.endedByCall()
			switch {
			case len(in.early(r)) > 0 && name == "migrate":
				out["init-needs-network"], out["startup-race migrate"] = true, true
			case len(in.early(r)) > 0:
				out["startup-race "+name] = true
				if slices.ContainsFunc(in.pod.Spec.Containers, func(c corev1.Container) bool { return c.Lifecycle != nil }) {
					out["hold-fails-open "+name] = true
				}
			}
			switch {
			case ownEnd && name == "istio-proxy" && in.fates[name].reason == "OOMKilled":
				out["proxy-out-of-memory"], out["out-of-memory "+name] = true, true
			case ownEnd && name == "istio-proxy":
				out["proxy-died"], out["app-crash "+name] = true, true
			case ownEnd && name == "istio-init":
				out["capture-not-in-place"] = true
			case ownEnd && in.fates[name].reason == "OOMKilled":
				out["out-of-memory "+name] = true
			case ownEnd:
				out["app-crash "+name] = true
			}
		}
	}
	for _, p := range in.out.Pulls {
		if p.Failed {
			out["image-missing "+p.Container] = true
		}
	}
	if in.deletion != nil {
		return in.atTheEnd(out)
	}
	if n := len(proxy); n > 0 && !proxy[n-1].ended() && proxy[n-1].ready == 0 {
		out["proxy-not-ready"] = true
	}
	if in.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && in.over("app") && in.over("audit") && len(proxy) > 0 && !proxy[len(proxy)-1].ended() {
		out["job-never-ends"] = true
	}
	return out
}

func (in *incident) over(name string) bool {
	all := in.runs[name]
	return len(all) == 0 || all[len(all)-1].ended()
}

// well reports whether the pod is ready at the end, or has done its work.
func (in *incident) well() bool {
	last := in.out.Shown[len(in.out.Shown)-1]
	return last.Ready || last.Phase == "Succeeded"
}

// files returns the evidence: the pod, as kubectl prints it, and the logs of the last two runs of each container.
func (in *incident) files() map[string]string {
	pod := in.pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.CreationTimestamp = metav1.NewTime(in.began)
	pod.Status = in.status()
	if d := in.deletion; d != nil {
		gone, grace := metav1.NewTime(in.at(d.at+d.grace).Truncate(time.Second)), int64(d.grace/time.Second)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &gone, &grace
	}
	text, err := yaml.Marshal(pod)
	if err != nil {
		panic(err)
	}
	out := map[string]string{"pod.yaml": string(text)}
	for name := range in.runs {
		for i, r := range in.shown(name) {
			file := name + ".log"
			if i < len(in.shown(name))-1 {
				file = name + ".previous.log"
			}
			out[file] = in.log(name, r)
		}
	}
	if d := in.deletion; d != nil {
		delete(out, d.without+".log")
		if d.events {
			out["events.yaml"] = in.events()
		}
	}
	return out
}

func (in *incident) log(name string, r simulatedRun) string {
	var b strings.Builder
	said := false // that it was told to stop
	line := func(at time.Duration, text string) {
		fmt.Fprintf(&b, "%s %s\n", in.at(at).Format("2006-01-02T15:04:05.000000Z"), text)
	}
	stop := func(until time.Duration) {
		if d := in.deletion; d != nil && r.stopped && !said && until >= r.told {
			said = true
			if says := d.manners[name].says; says != "" {
				line(r.told+time.Millisecond, says)
			}
		}
	}
	if name == "istio-proxy" {
		line(r.from+20*time.Millisecond, "info\tStarting proxy agent")
		if in.deletion != nil {
			line(r.from+30*time.Millisecond, "info\tEnvoy command: [-c etc/istio/proxy/envoy-rev.json --drain-time-s 45]")
		}
		if r.ready != 0 {
			line(r.ready, "info\tEnvoy proxy is ready")
		}
	} else {
		line(r.from+time.Millisecond, "info starting "+name)
	}
	for _, at := range r.refused {
		stop(at)
		what := "error cannot load the catalogue: dial tcp 10.96.7.20:5432: connect: connection refused"
		switch {
		case in.late(at):
			what = "error cannot write the offsets: dial tcp 10.96.7.20:5432: connect: connection refused"
		case at != r.to:
			what = "warn catalogue not loaded, going on without it: dial tcp 10.96.7.20:5432: connect: connection refused"
		}
		line(at, what)
	}
	stop(simulate.Forever)
	if name == "istio-proxy" && said && r.ended() && r.code == 0 {
		line(r.to-time.Millisecond, "info\tGraceful termination period complete, terminating remaining proxies.")
		line(r.to, "info\tEnvoy aborted normally")
	}
	if f := in.fates[name]; r.ended() && r.code == f.code && f.says != "" && !r.endedByCall() && !in.stoppedWell(name, r) {
		b.WriteString(f.says + "\n")
	}
	return b.String()
}

func (in *incident) status() corev1.PodStatus {
	last := in.out.Shown[len(in.out.Shown)-1]
	st := corev1.PodStatus{Phase: in.phase(last), QOSClass: corev1.PodQOSBestEffort}
	started := metav1.NewTime(in.at(in.out.Shown[0].At).Truncate(time.Second))
	st.StartTime = &started
	condition := func(kind corev1.PodConditionType, is func(simulate.Shown) bool, reason string) {
		since, now := in.out.Shown[0].At, is(in.out.Shown[0])
		for _, s := range in.out.Shown {
			if is(s) != now {
				since, now = s.At, is(s)
			}
		}
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(in.at(since).Truncate(time.Second))}
		if !now {
			c.Status, c.Reason = corev1.ConditionFalse, reason
		}
		st.Conditions = append(st.Conditions, c)
	}
	condition(corev1.PodScheduled, func(simulate.Shown) bool { return true }, "")
	condition(corev1.PodReadyToStartContainers, func(s simulate.Shown) bool { return s.HasIP }, "")
	condition(corev1.PodInitialized, func(s simulate.Shown) bool { return s.Initialized }, "ContainersNotInitialized")
	condition(corev1.ContainersReady, func(s simulate.Shown) bool { return s.ContainersReady }, "ContainersNotReady")
	condition(corev1.PodReady, func(s simulate.Shown) bool { return s.Ready }, "ContainersNotReady")
	for _, c := range in.pod.Spec.InitContainers {
		st.InitContainerStatuses = append(st.InitContainerStatuses, in.container(c, last))
	}
	for _, c := range in.pod.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, in.container(c, last))
	}
	if in.deletion != nil && in.out.Over {
		madeUp(&st)
	}
	return st
}

// container returns the status of a container.
func (in *incident) container(c corev1.Container, last simulate.Shown) corev1.ContainerStatus {
	all := in.published(c.Name)
	out := corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: int32(max(0, len(all)-1))}
	if len(all) == 0 {
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		if !in.terminating() && slices.ContainsFunc(in.out.Pulls, func(p chart.Pull) bool { return p.Container == c.Name && p.Failed }) {
			out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q", c.Image)}
		}
		return out
	}
	now := all[len(all)-1]
	if len(all) > 1 {
		out.LastTerminationState.Terminated = in.terminated(c.Name, all[len(all)-2])
	}
	switch {
	case !now.ended():
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(in.at(now.from).Truncate(time.Second))}
		up := c.ReadinessProbe == nil && c.StartupProbe == nil || now.ready != 0
		out.Started, out.Ready = &up, up || last.Ready
	case !in.terminating() && in.waits(c.Name):
		out.LastTerminationState.Terminated = in.terminated(c.Name, now)
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off 10s restarting failed container=%s", c.Name)}
	default:
		out.State.Terminated = in.terminated(c.Name, now)
		out.Ready = now.code == 0 && last.Initialized && slices.ContainsFunc(in.pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
	}
	return out
}

// waits reports whether the last event of a container is that the kubelet waits before it restarts it.
func (in *incident) waits(name string) bool {
	is := false
	for _, e := range in.out.Timeline.Sorted() {
		if e.Container == name {
			is = e.What == startup.IsWaiting
		}
	}
	return is
}

func (in *incident) terminated(name string, r simulatedRun) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if r.code != 0 {
		reason = "Error"
	}
	if f := in.fates[name]; f.code == r.code && f.reason != "" && !r.endedByCall() && !in.outlived(r) {
		reason = f.reason
	}
	return &corev1.ContainerStateTerminated{ExitCode: r.code, Reason: reason,
		StartedAt: metav1.NewTime(in.at(r.from).Truncate(time.Second)), FinishedAt: metav1.NewTime(in.at(r.to).Truncate(time.Second))}
}
