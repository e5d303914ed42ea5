package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
)

// dashed returns a valid name for a pod, from the name of a case.
func dashed(prefix, name string) string {
	return prefix + "-" + strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)
}

// probed returns a change that adds a readiness probe to the container with this name.
func probed(name string, port int) change {
	return func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			if p.Spec.Containers[i].Name == name {
				p.Spec.Containers[i].ReadinessProbe = httpProbe("/ready", port)
			}
		}
	}
}

// Containers that wait for one another and for the proxy start in the declared order, also after some of them are
// killed.
func TestGraph(t *testing.T) {
	t.Run("of services", func(t *testing.T) {
		r := newRun(t)
		p := r.webhook(awesome("shop", "graph",
			another("db", "serve", "--listen=:8081", "--healthy=1s"), probed("db", 8081),
			another("cache", "serve", "--listen=:8082", "--healthy=500ms"), probed("cache", 8082),
			another("metrics", "serve", "--listen=:8083", "--call=http://server.shop/"),
			annotated("outrider.dev/depends-on", `
app: {outrider-proxy: healthy, db: healthy, cache: healthy}
cache: {db: started}
metrics: {app: started, outrider-proxy: healthy}
`)))
		r.ready(p)
		r.emitted(p, "metrics", "called", 1)
		r.must(p.KillBelow("db", "app"))
		r.must(p.KillBelow("app", "app"))
		r.emitted(p, "app", "started", 2)
		r.ready(p)
		r.deleted(p)
		r.ordered(p)
		if _, refused := r.entry.tally(p); refused > 0 {
			t.Errorf("%d refused\n%s", refused, p.Describe())
		}
	})
	t.Run("of a job", func(t *testing.T) {
		r := newRun(t)
		p := r.webhook(awesome("shop", "graph-job", restart(corev1.RestartPolicyNever), works("--calls=3"),
			another("migrate", "work", "--call=http://server.shop/", "--calls=3", "--every=100ms"),
			annotated("outrider.dev/depends-on", `
app: {outrider-proxy: healthy, migrate: completed}
migrate: {outrider-proxy: healthy}
`)))
		if phase := r.ends(p); phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s\n%s", phase, p.Describe())
		}
		r.kept(p)
	})
	t.Run("with a helper that a job leaves behind", func(t *testing.T) {
		nightly(t, true)
		r := newRun(t)
		p := r.webhook(awesome("shop", "graph-helper", restart(corev1.RestartPolicyNever), works("--calls=3"),
			another("db", "serve", "--listen=:8081"), probed("db", 8081),
			annotated("outrider.dev/depends-on", `
app: {outrider-proxy: healthy, db: healthy}
`)))
		if phase := r.ends(p); phase != corev1.PodSucceeded {
			t.Errorf("the pod is %s\n%s", phase, p.Describe())
		}
		r.kept(p)
	})
	t.Run("a cycle is refused", func(t *testing.T) {
		r := newRun(t)
		_, err := w.Create(r.Context(), awesome("shop", "graph-cycle", another("b", "serve", "--listen=:8081"), probed("b", 8081),
			annotated("outrider.dev/depends-on", "app: {b: healthy}\nb: {app: healthy}\n")))
		if err == nil || !strings.Contains(err.Error(), "app") || !strings.Contains(err.Error(), "b") {
			t.Errorf("error %v, want one that names the way round", err)
		}
	})
}

// A pod ends when its application ends. The pod's phase follows from the application's exit status, and the proxy
// ends last.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		changes []change
		want    corev1.PodPhase
		code    int32
		starts  int
		nightly bool
	}{
		"never":                {[]change{restart(corev1.RestartPolicyNever), works("--calls=5")}, corev1.PodSucceeded, 0, 1, true},
		"never, fails":         {[]change{restart(corev1.RestartPolicyNever), works("--calls=5", "--code=3")}, corev1.PodFailed, 3, 1, false},
		"on failure":           {[]change{restart(corev1.RestartPolicyOnFailure), works("--calls=5")}, corev1.PodSucceeded, 0, 1, true},
		"on failure, two runs": {[]change{restart(corev1.RestartPolicyOnFailure), works("--code=3", "--failures=1", "--say=/scratch/runs"), scratch}, corev1.PodSucceeded, 0, 2, false},
		"native":               {[]change{restart(corev1.RestartPolicyNever), start(startup.Native), works("--calls=5")}, corev1.PodSucceeded, 0, 1, false},
		"a plain proxy":        {[]change{restart(corev1.RestartPolicyNever), annotated("sidecar.istio.io/nativeSidecar", "false"), works("--calls=5")}, corev1.PodSucceeded, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			nightly(t, c.nightly)
			r := newRun(t)
			p := r.webhook(awesome("shop", dashed("ends", name), c.changes...))
			if phase := r.ends(p); phase != c.want {
				t.Errorf("the pod is %s, want %s\n%s", phase, c.want, p.Describe())
			}
			status, _ := p.Status()
			for _, s := range status.ContainerStatuses {
				if s.Name == "app" && (s.State.Terminated == nil || s.State.Terminated.ExitCode != c.code) {
					t.Errorf("the application is %+v, want exit status %d", s.State, c.code)
				}
			}
			if _, ok := p.Has("app", "started", c.starts); !ok {
				t.Errorf("the application was not started %d times\n%s", c.starts, p.Describe())
			}
			r.kept(p)
		})
	}
}

func scratch(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
}

// Jobs complete or fail as they do without a mesh. CronJobs are not tested separately, because they create Jobs.
func TestJobs(t *testing.T) {
	for name, c := range map[string]struct {
		pods      int
		code      int
		condition string
	}{
		"job":       {3, 0, "Complete"},
		"job-fails": {1, 4, "Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			r.must(w.Apply(r.Context(), fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: shop}
spec:
  completions: %d
  parallelism: %[2]d
  backoffLimit: 0
  template:
    metadata:
      annotations: {sidecar.istio.io/proxyCPU: 10m, sidecar.istio.io/proxyMemory: 32Mi}
    spec:
      restartPolicy: Never
      containers:
      - {name: app, image: "%[3]s", command: [/app, work, "--call=http://server.shop/", "--calls=5", "--code=%[4]d"]}
`, name, c.pods, awesomeImage, c.code)))
			r.job(name, c.condition, c.pods)
		})
	}
}
