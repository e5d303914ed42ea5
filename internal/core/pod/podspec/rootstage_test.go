package podspec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

// If a proxy has a root stage, it copies the agent for the gates. So Write adds no init container. The proxy's
// hook is not mistaken for one that waits until the proxy is healthy, and the plan is read back.
func TestRootStage(t *testing.T) {
	p := pods.Parse(t, `
metadata: {name: shop}
spec:
  containers:
  - {name: outrider-proxy, image: p, args: [proxy, sidecar]}
  - {name: app, image: a, command: [/app]}
`)
	if Staged(&p.Spec.Containers[0]) {
		t.Error("a proxy without a root stage is reported to have one")
	}
	if err := WriteStage(&p.Spec.Containers[0], []string{"-u", "1337"}); err != nil {
		t.Fatal(err)
	}
	proxy := &p.Spec.Containers[0]
	if got := strings.Join(proxy.Args, " "); !Staged(proxy) || got != "root-stage --copy /outrider/bin/outrider-agent -u 1337 -- proxy sidecar" {
		t.Errorf("%q", got)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: BinVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
	plan := pods.Plan(t, "app after outrider-proxy is healthy, by gate")
	out, err := Write(p, plan, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Spec.InitContainers) > 0 {
		t.Errorf("init containers %+v", out.Spec.InitContainers)
	}
	r, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Plan().Edges; !slices.Equal(got, plan.Edges) {
		t.Errorf("read back: %v, want %v", got, plan.Edges)
	}
	if c, _ := r.Plan().Find("outrider-proxy"); c.Health == startup.PostStart {
		t.Error("the hook that waits for the capture is taken for one that waits for the proxy")
	}
	for _, want := range []string{"costs 0.4 s of the pod's start", "StartError (exit 128)", "kubectl exec into outrider-proxy is root with NET_ADMIN"} {
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("notes %q; want %q", r.Notes, want)
		}
	}
	proxy = &out.Spec.Containers[0]
	proxy.Command = []string{"/usr/local/bin/outrider-agent"} // as in a pod that sets the command
	if !Staged(proxy) {
		t.Error("with its command it is not recognised")
	}
}
