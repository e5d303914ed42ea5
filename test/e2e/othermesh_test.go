package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
	"outrider.dev/test/cluster"
	"outrider.dev/test/e2e/world"
)

// An otherMesh is a form of the proxy of another mesh: a real Envoy below a wrapper that ends it as the agent of
// that mesh does.
type otherMesh struct {
	like   string
	native bool
	flags  []string
	drains *corev1.LifecycleHandler // preStop hook of its own
}

// otherMeshes are the forms, with Istio's native sidecar as Istio injects it: its hook drains the inbound listeners.
var otherMeshes = map[string]otherMesh{
	"istio":                  {like: "istio", flags: []string{"--stop=1s"}},
	"istio, on zero":         {like: "istio", flags: []string{"--stop=100ms", "--on-zero"}},
	"istio, hook of its own": {like: "istio", flags: []string{"--stop=1s"}, drains: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/shared/app", "post", "http://127.0.0.1:15020/drain"}}}},
	"istio, native": {like: "istio", native: true, flags: []string{"--stop=1s"},
		drains: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/shared/app", "post", "http://127.0.0.1:15020/drain"}}}},
	"linkerd":                {like: "linkerd"},
	"linkerd, waits to exit": {like: "linkerd", drains: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sleep", "1"}}}},
	"linkerd, native":        {like: "linkerd", native: true},
}

// proxyOf returns the name of the mesh's proxy.
func (m otherMesh) proxyOf() string { return m.like + "-proxy" }

// inject adds what the injector of the other mesh adds.
func (m otherMesh) inject(p *corev1.Pod) {
	user, port, ready := int64(1337), 15001, httpProbe("/healthz/ready", 15021)
	if m.like == "linkerd" {
		user, port, ready = 2102, 4140, httpProbe("/ready", 4191)
	}
	p.Annotations["outrider.dev/proxy"] = "none"
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	shared := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	p.Spec.InitContainers = append(p.Spec.InitContainers,
		corev1.Container{Name: "copy", Image: world.AppImage, Command: []string{"/app", "copy", "/shared/app"}, VolumeMounts: shared},
		corev1.Container{Name: m.like + "-init", Image: cluster.BaseImage, Command: []string{"sh", "-ec", fmt.Sprintf(`
iptables -t nat -N OTHER_OUTPUT
iptables -t nat -A OUTPUT -p tcp -j OTHER_OUTPUT
iptables -t nat -A OTHER_OUTPUT -m owner --uid-owner %d -j RETURN
iptables -t nat -A OTHER_OUTPUT -d 127.0.0.1/32 -j RETURN
iptables -t nat -A OTHER_OUTPUT -p tcp -j REDIRECT --to-ports %d
`, user, port)}, SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}}})
	proxy := corev1.Container{
		Name: m.proxyOf(), Image: world.ProxyImage, Command: slices.Concat([]string{"/shared/app", "wrapper", "--like=" + m.like, "--after=2s"}, m.flags),
		SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &user}, ReadinessProbe: ready, VolumeMounts: shared,
	}
	if m.drains != nil {
		proxy.Lifecycle = &corev1.Lifecycle{PreStop: m.drains}
	}
	if m.native {
		always := corev1.ContainerRestartPolicyAlways
		startup := *ready
		startup.FailureThreshold = 600
		proxy.RestartPolicy, proxy.StartupProbe = &always, &startup
		p.Spec.InitContainers = append(p.Spec.InitContainers, proxy)
		return
	}
	p.Spec.Containers = append(p.Spec.Containers, proxy)
}

// Beside the proxy of another mesh the application starts after it and ends before it, whatever the form of that
// proxy: no call of the application fails, also during its own stop, which takes longer than the proxy's drain.
func TestWithAnotherMesh(t *testing.T) {
	for name, mesh := range otherMeshes {
		for order, changes := range map[string][]change{
			"order and parking": nil,
			"parking alone":     {annotated("outrider.dev/start", "off")},
		} {
			t.Run(name+"/"+order, func(t *testing.T) {
				nightly(t, name != "istio" && !(name == "linkerd" && order == "order and parking"))
				r := newRun(t)
				p := r.cli(awesome("plain", dashed("other-mesh", name+" "+order), append(changes,
					command("serve", "--config=http://config.centre/", "--call=http://server.shop/", "--stop=3s", "--fresh"), mesh.inject)...))
				r.ready(p)
				r.emitted(p, "app", "called", 1)
				if n := p.Restarts("app"); n > 0 {
					t.Errorf("%d restarts\n%s", n, p.Describe())
				}
				r.deleted(p)
				if found := r.judge(p); len(found) > 0 {
					t.Errorf("violations: %v\n%s", found, p.Describe())
				}
				if failed, refused := r.entry.tally(p); failed+refused > 0 {
					t.Errorf("%d failed, %d refused\n%s", failed, refused, p.Describe())
				}
				r.leavesLast(p, mesh.proxyOf())
			})
		}
	}
}

// A worker listens on nothing, keeps no connection, and has no gate: its command is in the image, or its author wants no
// change of commands. Only its calls show that it still runs.
func TestAWorkerWithAnotherMesh(t *testing.T) {
	worker := []string{"serve", "--config=http://config.centre/", "--call=http://server.shop/", "--stop=8s", "--fresh", "--listen=none", "--every=500ms"}
	for _, name := range []string{"istio", "linkerd"} {
		for how, changes := range map[string][]change{
			"the image's command": {func(p *corev1.Pod) { p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = nil, worker }},
			"parking alone":       {command(worker...), annotated("outrider.dev/start", "off")},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				nightly(t, true)
				r := newRun(t)
				p := r.cli(awesome("plain", dashed("other-mesh-worker", name+" "+how), append(changes, otherMeshes[name].inject, func(p *corev1.Pod) {
					p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].Ports = nil, nil
				})...))
				r.ready(p)
				r.emitted(p, "app", "called", 1)
				r.deleted(p)
				if failed, refused := r.entry.tally(p); failed+refused > 0 {
					t.Errorf("%d failed, %d refused\n%s", failed, refused, p.Describe())
				}
				r.leavesLast(p, otherMeshes[name].proxyOf())
			})
		}
	}
}

// leavesLast fails the case unless the application ended, by itself, before a container.
func (r *run) leavesLast(p *world.Pod, last string) {
	r.Helper()
	done, ok := p.Has("app", "done", 1)
	if !ok {
		r.Errorf("the application was killed before its last call returned\n%s", p.Describe())
		return
	}
	for _, e := range p.Timeline() {
		if e.Container == last && (e.What == startup.IsCompleted || e.What == startup.HasFailed) && p.Time(e).Before(done.At) {
			r.Errorf("%s ended %s before the application\n%s", last, done.At.Sub(p.Time(e)), p.Describe())
		}
	}
	report.count(r.entry, func(e *entry) {
		stopping, _ := p.Has("app", "stopping", 1)
		e.remark = fmt.Sprintf(" (the application ended %.2f s after SIGTERM)", done.At.Sub(stopping.At).Seconds())
	})
}

// A Job ends beside the native sidecar of another mesh, which the kubelet stops when the application has completed.
func TestAJobWithAnotherMesh(t *testing.T) {
	for _, name := range []string{"istio, native", "linkerd, native"} {
		t.Run(name, func(t *testing.T) {
			nightly(t, name != "istio, native")
			r := newRun(t)
			p := r.cli(awesome("plain", dashed("other-mesh-job", name), works("--calls=3"), restart(corev1.RestartPolicyNever), otherMeshes[name].inject))
			if phase := r.ends(p); phase != corev1.PodSucceeded {
				t.Errorf("phase %s\n%s", phase, p.Describe())
			}
			if found := r.judge(p); len(found) > 0 {
				t.Errorf("violations: %v\n%s", found, p.Describe())
			}
		})
	}
}
