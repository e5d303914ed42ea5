package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/doctor/diagnose/follow"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/process"
)

// judged is how "outrider diagnose" judges an incident: VERDICT, or VERDICT CODE CONTAINER of the first finding; after a colon
// a part of the sentence.
type judged struct {
	live      string // with all evidence of the cluster
	described string // by the text of "kubectl describe" alone, which has no logs, hooks, or restart policy
}

// "outrider diagnose" finds the fault of a pod or a workload: in the cluster, from the data of the API server and the
// kubelet, and in the text of "kubectl describe" alone, where it may be less sure.
func TestIncidents(t *testing.T) {
	for name, c := range map[string]struct {
		stage func(*run) *world.Pod
		judged
		often bool // the case is in every run, not only in the nightly run
	}{
		"clean":                  {clean, judged{"nothing", "nothing"}, true},
		"race":                   {race, judged{"found startup-race app", "undecided startup-race app"}, true},
		"dead control plane":     {noControlPlane, judged{"found no-control-plane outrider-proxy", "starting"}, false},
		"configuration rejected": {rejected, judged{"found configuration-rejected istio-proxy", "starting"}, false},
		"proxy out of memory":    {proxyOutOfMemory, judged{"found proxy-out-of-memory istio-proxy", "found proxy-out-of-memory istio-proxy"}, false},
		"excluded port":          {excludedPort, judged{"found dependency-down app", "undecided app-crash app"}, false},
		"liveness":               {killedByLiveness, judged{"found killed-by-probe app", "found killed-by-probe app"}, false},
		"job":                    {jobThatHangs, judged{"found job-never-ends istio-proxy", "starting"}, true},
		"image":                  {imageMissing, judged{"found image-missing app", "found image-missing app"}, false},
		"shutdown race":          {shutdownRace, judged{"found shutdown-race app", "nothing"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, !c.often)
			r := newRun(t)
			p := c.stage(r)
			r.judges(c.judged, p.Namespace, p.Name, "pod/"+p.Name)
		})
	}
	for name, c := range workloads {
		t.Run(name, func(t *testing.T) {
			nightly(t, !c.often)
			r := newRun(t)
			namespace, p := r.staged(c)
			described := "replicaset" // of a workload without pods
			if p != nil {
				described = "pod/" + p.Name
			}
			r.judges(c.judged, namespace, cmp.Or(c.ask, "deploy/web"), described)
		})
	}
}

// judges compares the judgements about a pod or a workload with the expected ones. The argument described is for
// "kubectl describe".
func (r *run) judges(want judged, namespace, name, described string) {
	r.Helper()
	text, err := w.Kubectl(r.Context(), "", "describe", described, "--namespace="+namespace)
	r.must(err)
	file := filepath.Join(r.TempDir(), "described.txt")
	r.must(os.WriteFile(file, []byte(text), 0o600))
	for _, one := range []struct {
		want string
		args []string
	}{
		{want.live, []string{name, "--namespace=" + namespace}},
		{want.described, []string{"--filename=" + file}},
	} {
		got := r.diagnosed(one.args...)
		first := string(got.Verdict)
		if len(got.Findings) > 0 {
			first = strings.TrimSpace(fmt.Sprintf("%s %s %s", first, got.Findings[0].Code, got.Findings[0].Container))
		}
		if is, says, _ := strings.Cut(one.want, ": "); first != is || !strings.Contains(got.Sentence, says) {
			all, _ := w.Outrider(r.Context(), append([]string{"diagnose"}, one.args...)...)
			r.Errorf("%s: %s\nwant %s\n%s\n%s", first, got.Sentence, one.want, all, text)
		}
	}
}

// diagnosed returns the report of "outrider diagnose" about one pod or workload. It checks that the exit status fits the report.
func (r *run) diagnosed(args ...string) result.Report {
	r.Helper()
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(r.Context(), filepath.Join(w.Root, "bin", "outrider"), append([]string{"diagnose", "-o", "json", "--slow=" + world.Patience.String()}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	var reports []result.Report
	if e := json.Unmarshal(out.Bytes(), &reports); e != nil || len(reports) != 1 {
		r.Fatalf("%d reports, %v, %v: %s%s", len(reports), e, err, &out, &notes)
	}
	var exit *exec.ExitError
	failed := errors.As(err, &exit) && exit.ExitCode() == 1
	if failed == reports[0].Verdict.Well() || err != nil && !failed {
		r.Errorf("%v, and the verdict %s\n%s", err, reports[0].Verdict, &notes)
	}
	return reports[0]
}

// stateOf returns a container's state in the API, where changes appear a second or two later than on the node.
func stateOf(p *world.Pod, container string) corev1.ContainerState {
	for _, c := range p.Containers() {
		if c.Name == container {
			return c.State
		}
	}
	return corev1.ContainerState{}
}

func runs(p *world.Pod, container string) bool { return stateOf(p, container).Running != nil }

func clean(r *run) *world.Pod {
	p := r.webhook(awesome("shop", "incident-clean"))
	r.ready(p)
	r.emitted(p, "app", "called", 1)
	return p
}

// race makes a pod whose proxy starts late. The application does not wait for it, fails, and succeeds after a restart.
func race(r *run) *world.Pod {
	late := "test.outrider.dev/incident-race:1"
	p := r.cli(awesome("plain", "incident-race", start("off"), annotated("outrider.dev/park", "off"), annotated("sidecar.istio.io/proxyImage", late)),
		"--set", "values.global.proxy_init.image="+world.ProxyImage)
	gaveUp := r.emitted(p, "app", "gives-up", 1).At
	r.until(p, "another second, since its log has whole ones", func() bool { return time.Since(gaveUp) > 2*time.Second })
	r.must(w.Tag(r.Context(), world.ProxyImage, late))
	r.ready(p)
	r.emitted(p, "app", "called", 1)
	return p
}

func noControlPlane(r *run) *world.Pod {
	p := r.webhook(awesome("shop", "incident-no-plane", annotated("proxy.istio.io/config", "discoveryAddress: outriderd.gone.svc:15012")))
	r.until(p, "the proxy says that its control plane is away", func() bool { return p.Wrote(proxy, "is not reached") > 0 && runs(p, proxy) })
	return p
}

// rejected makes a pod whose proxy is an Envoy that rejects its configuration.
func rejected(r *run) *world.Pod {
	r.must(w.Apply(r.Context(), rejectedConfiguration))
	p := r.webhook(awesome("plain", "incident-rejected", func(p *corev1.Pod) {
		user := int64(1337)
		p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "incident-rejected"}}}}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "istio-proxy", Image: world.ProxyImage, Command: []string{"/usr/local/bin/envoy", "-c", "/config/envoy.yaml"},
			SecurityContext: &corev1.SecurityContext{RunAsUser: &user},
			VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
			ReadinessProbe:  httpProbe("/healthz/ready", 15021),
		})
	}))
	r.until(p, "Envoy rejects its listener", func() bool { return p.Wrote("istio-proxy", "rejected") > 0 && runs(p, "istio-proxy") })
	return p
}

const rejectedConfiguration = `
apiVersion: v1
kind: ConfigMap
metadata: {name: incident-rejected, namespace: plain}
data:
  envoy.yaml: |
    node: {id: incident, cluster: incident}
    dynamic_resources:
      lds_config: {path_config_source: {path: /config/listeners.yaml}}
  listeners.yaml: |
    resources:
    - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
      name: ready
      address: {socket_address: {address: 0.0.0.0, port_value: 15021}}
      filter_chains: [{filters: [{name: envoy.filters.network.tcp_proxy, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, cluster: none}}]}]
`

// captured returns a change that adds the proxy of another mesh, and capture for it.
func captured(flags ...string) change {
	return func(p *corev1.Pod) {
		user := int64(1337)
		p.Annotations["sidecar.istio.io/status"] = `{"initContainers":["istio-init"],"containers":["istio-proxy"]}`
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "istio-init", Image: world.ProxyImage, Command: []string{"/usr/local/bin/pilot-agent"},
			Args:            []string{"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "", "--park=off"},
			SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}},
		})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "istio-proxy", Image: world.AppImage, Command: append([]string{"/app", "proxy"}, flags...),
			SecurityContext: &corev1.SecurityContext{RunAsUser: &user},
			ReadinessProbe:  httpProbe("/healthz/ready", 15021),
		})
	}
}

// proxyOutOfMemory makes a pod whose application keeps calling, and whose proxy exceeds its memory limit.
func proxyOutOfMemory(r *run) *world.Pod {
	p := r.webhook(awesome("plain", "incident-oom", command("serve", "--call=http://server.shop/"), captured("--eat=200", "--every=3s"), func(p *corev1.Pod) {
		p.Spec.Containers[1].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")}
	}))
	r.until(p, "the proxy starts again", func() bool { return p.Restarts("istio-proxy") > 0 })
	r.emitted(p, "app", "failure", 1)
	return p
}

// excludedPort makes a pod whose application calls a port that is excluded from capture, so the call bypasses the proxy.
func excludedPort(r *run) *world.Pod {
	pods, err := w.Adopt(r.Context(), "centre", "app=config")
	r.must(err)
	status, _ := pods[0].Status()
	p := r.webhook(awesome("shop", "incident-excluded", annotated("traffic.sidecar.istio.io/excludeOutboundPorts", "8081"),
		command("serve", fmt.Sprintf("--config=http://%s:8081/", status.PodIP))))
	r.until(p, "started again", func() bool { return p.Restarts("app") > 0 })
	return p
}

func killedByLiveness(r *run) *world.Pod {
	p := r.webhook(awesome("plain", "incident-liveness", command("serve", "--healthy=1h"), func(p *corev1.Pod) {
		p.Spec.Containers[0].LivenessProbe = httpProbe("/ready", 8080)
	}))
	r.until(p, "started again", func() bool { return p.Restarts("app") > 0 })
	return p
}

// jobThatHangs makes a pod like that of a Job: its application has exited, and its proxy keeps running.
func jobThatHangs(r *run) *world.Pod {
	p := r.webhook(awesome("plain", "incident-job", command("work", "--every=1s"), restart(corev1.RestartPolicyNever), captured()))
	r.until(p, "the work is done", func() bool { return stateOf(p, "app").Terminated != nil && runs(p, "istio-proxy") })
	return p
}

func imageMissing(r *run) *world.Pod {
	p := r.webhook(awesome("plain", "incident-image", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "test.outrider.dev/none:1" }))
	r.until(p, "the image is missed", func() bool { return missing(p, "app") })
	return p
}

// shutdownRace makes a pod that is being deleted: its proxy has exited, while its application keeps calling after
// SIGTERM. The API server reports the proxy's exit only when all containers have ended.
func shutdownRace(r *run) *world.Pod {
	p := r.webhook(awesome("plain", "incident-shutdown", grace(60), command("serve", "--call=http://server.shop/", "--every=500ms", "--stop=50s"), captured(), func(p *corev1.Pod) {
		slices.Reverse(p.Spec.Containers) // so that the proxy starts first, some time before the application
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
	}))
	r.ready(p)
	r.emitted(p, "app", "called", 1)
	r.must(p.StartDelete(r.Context()))
	r.emitted(p, "app", "failure", 5)
	return p
}

// The patch that a diagnosis of a race suggests removes the race: no call of the patched workload's pods is refused,
// although their proxy is as late as before. The test also follows both roll-outs with the command.
func TestThePatchOfADiagnosis(t *testing.T) {
	r := newRun(t)
	const late = "test.outrider.dev/incident-patched:1"
	source := filepath.Join(t.TempDir(), "web.yaml")
	r.must(os.WriteFile(source, []byte(strings.ReplaceAll(racingDeployment, "LATE", late)), 0o600))
	before := r.deployed(source, nil)
	followed := r.follow("deploy/incident-patched", "plain")
	r.emitted(before, "app", "gives-up", 1)
	r.must(w.Tag(r.Context(), world.ProxyImage, late))
	r.ready(before)
	report := r.diagnosed(before.Name, "--namespace="+before.Namespace)
	if len(report.Findings) == 0 || report.Findings[0].Code != "startup-race" || report.Findings[0].Patch == "" {
		t.Fatalf("%s\n%s", report.Sentence, before.Describe())
	}
	if lines, status := followed(); status != 1 || !says(lines, "startup-race") {
		t.Errorf("exit status %d of the one that follows the roll-out, want 1 and startup-race: %+v", status, lines)
	}
	r.must(w.Untag(r.Context(), late))
	patch := filepath.Join(t.TempDir(), "patch.yaml")
	r.must(os.WriteFile(patch, []byte(report.Findings[0].Patch), 0o600))
	patched, err := w.Kubectl(r.Context(), "", "patch", "--local", "--filename="+source, "--patch-file="+patch, "--output=yaml")
	r.must(err)
	r.must(os.WriteFile(source, []byte(patched), 0o600))
	after := r.deployed(source, before)
	followed = r.follow("deploy/incident-patched", "plain")
	r.until(after, "the image is missed", func() bool { return missing(after, proxy) })
	r.must(w.Tag(r.Context(), world.ProxyImage, late))
	r.ready(after)
	r.emitted(after, "app", "called", 1)
	if failed, refused := r.entry.tally(after); failed+refused+after.Restarts("app") > 0 {
		t.Errorf("%d failed, %d refused, %d restarts\n%s", failed, refused, after.Restarts("app"), after.Describe())
	}
	if got := r.diagnosed(after.Name, "--namespace="+after.Namespace); got.Verdict != result.Nothing {
		text, _ := w.Outrider(r.Context(), "diagnose", after.Name, "-n", after.Namespace)
		t.Errorf("after the patch: %s\n%s\n%s", got.Sentence, text, after.Describe())
	}
	if lines, _ := followed(); says(lines, "startup-race") || lines[len(lines)-1].Summary == nil || !lines[len(lines)-1].Summary.Complete {
		t.Errorf("the one that follows the patched roll-out: %+v", lines)
	}
	_, err = w.Kubectl(r.Context(), "", "delete", "--namespace=plain", "deployment/incident-patched", "--wait=false")
	r.must(err)
}

// follow starts the command that follows a roll-out. The returned function waits until the command ends, and returns
// the command's lines and exit status.
func (r *run) follow(workload, namespace string) (ended func() ([]follow.Line, int)) {
	r.Helper()
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(r.Context(), filepath.Join(w.Root, "bin", "outrider"), "diagnose", workload, "-n", namespace, "--watch", "-o", "json")
	cmd.Stdout, cmd.Stderr = &out, &notes
	r.must(process.StartBound(cmd))
	return func() (lines []follow.Line, status int) {
		r.Helper()
		_ = cmd.Wait() // the error is not needed, because the exit status is returned
		for decoder := json.NewDecoder(&out); decoder.More(); {
			var l follow.Line
			if err := decoder.Decode(&l); err != nil {
				r.Fatalf("%v: %s%s", err, &out, &notes)
			}
			lines = append(lines, l)
		}
		if len(lines) == 0 {
			r.Fatalf("it said nothing: %s", &notes)
		}
		return lines, cmd.ProcessState.ExitCode()
	}
}

// says reports whether a line names the cause, or says that the evidence so far fits the cause but does not decide.
func says(lines []follow.Line, code string) bool {
	return slices.ContainsFunc(lines, func(l follow.Line) bool {
		return string(l.Code) == code || l.Sentence == "undecided: the evidence fits "+code
	})
}

const racingDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: incident-patched, namespace: plain}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: incident-patched}}
  template:
    metadata:
      labels: {app: incident-patched}
      annotations: {outrider.dev/start: "off", outrider.dev/park: "off", sidecar.istio.io/proxyImage: "LATE", sidecar.istio.io/proxyCPU: 10m, sidecar.istio.io/proxyMemory: 32Mi}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: app
        image: "` + world.AppImage + `"
        command: [/app, serve, --config=http://config.centre/, --call=http://server.shop/]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
`

// deployed injects the workload of a file with "outrider inject", applies it, and returns its new pod. The argument
// before is the workload's previous pod, or nil.
func (r *run) deployed(file string, before *world.Pod) *world.Pod {
	r.Helper()
	injected, err := w.Outrider(r.Context(), "inject", "-f", file, "--set", "values.global.proxy_init.image="+world.ProxyImage)
	r.must(err)
	r.must(w.Apply(r.Context(), injected))
	var found *world.Pod
	r.must(w.Until(r.Context(), "a pod of the workload", func() bool {
		pods, err := w.Adopt(r.Context(), "plain", "app=incident-patched")
		r.must(err)
		for _, p := range pods {
			if before == nil || p.UID != before.UID {
				found = p
			}
		}
		return found != nil
	}))
	return r.keep(found)
}
