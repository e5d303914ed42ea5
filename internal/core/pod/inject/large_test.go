package inject

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/startup"
)

// largePods returns pods with n containers whose plans have as many edges as possible, or nearly so. There is a
// pod for each method to request edges.
func largePods(n int) map[string]*corev1.Pod {
	pod := func(init int) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{}}}
		for i := range n {
			c := corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "i", Command: []string{"/c"}}
			if i < init {
				out.Spec.InitContainers = append(out.Spec.InitContainers, c)
			} else {
				c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/ready"}}}}
				out.Spec.Containers = append(out.Spec.Containers, c)
			}
		}
		return out
	}
	after := func(p *corev1.Pod, i int, names []string) {
		if len(names) > 0 {
			p.Annotations[fmt.Sprintf("%s.c%d", contract.DependsOn, i)] = strings.Join(names, ",")
		}
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	complete, chain, star, stars, sparse, unknown := pod(0), pod(0), pod(0), pod(0), pod(0), pod(0)
	for i := range n {
		after(complete, i, names[:i])
		after(chain, i, names[max(i-1, 0):i])
		after(star, i, names[:min(i, 1)])
		after(stars, i, []string{"*"})
		after(unknown, i, []string{fmt.Sprintf("d%d", i), fmt.Sprintf("e%d", i)})
		var some []string
		for j := 1; j <= i && j <= 64; j *= 2 {
			some = append(some, names[i-j])
		}
		after(sparse, i, some)
	}
	sidecars := pod(n - 1)
	always := corev1.ContainerRestartPolicyAlways
	for i := range sidecars.Spec.InitContainers {
		sidecars.Spec.InitContainers[i].RestartPolicy = &always
	}
	native := sparse.DeepCopy()
	native.Annotations[contract.Start] = string(startup.Native)
	job := sparse.DeepCopy()
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	backwards := pod(n - 1)
	for i := range n - 1 {
		after(backwards, i, names[i+1:])
	}
	return map[string]*corev1.Pod{"complete": complete, "chain": chain, "star": star, "everything": stars, "sparse": sparse, "unknown names": unknown,
		"init containers": pod(n - 1), "sidecars": sidecars, "native": native, "job": job, "against the list": backwards}
}

// The allocations and bytes of an injection or a refusal grow at most linearly with the number of edges, for
// every type of graph. Earlier they grew with the cube of the number of containers: 100 containers took 1.7 s,
// and 299 took minutes.
func TestWorkGrowsWithTheEdges(t *testing.T) {
	cost := func(pod *corev1.Pod) (allocations float64, bytes uint64) {
		var before, after runtime.MemStats
		allocations = testing.AllocsPerRun(1, func() {
			runtime.ReadMemStats(&before)
			var refusal *verdict.Refusal
			if _, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true}); err != nil && !errors.As(err, &refusal) {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
		})
		return allocations, after.TotalAlloc - before.TotalAlloc
	}
	small, large := largePods(75), largePods(300)
	for name, pod := range small {
		allocations, bytes := cost(pod)
		manyAllocations, manyBytes := cost(large[name])
		// The larger pod has 16 times as many edges, or four times as many containers.
		if manyAllocations > 20*allocations || manyBytes > 20*bytes {
			t.Errorf("%s: %v allocations and %d bytes for 75 containers, %v and %d for 300", name, allocations, bytes, manyAllocations, manyBytes)
		}
	}
}

// The largest possible pod is injected, or it is refused with a message that contains the maximum.
func TestLargestPods(t *testing.T) {
	want := map[string]verdict.Code{"complete": verdict.TooLarge, "against the list": verdict.TooLarge, "everything": verdict.TooLarge, "unknown names": verdict.InvalidGraph}
	for name, pod := range largePods(300) {
		r, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true})
		got := r.Reason.Code
		if refusal := (*verdict.Refusal)(nil); errors.As(err, &refusal) {
			got = refusal.Code
		}
		if code := cmp.Or(want[name], verdict.Injected); got != code {
			t.Errorf("%s: %s (%v), want %s", name, got, err, code)
		}
	}
	for name, n := range map[string]int{"complete": 110, "init containers": 300} {
		r, err := Pod(largePods(n)[name], Namespace{Name: "shop"}, Options{Manual: true})
		if err != nil || !r.Injected {
			t.Errorf("%s of %d containers: %v", name, n, err)
		}
	}
	for name, pod := range map[string]*corev1.Pod{
		"containers":  largePods(301)["init containers"],
		"annotations": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("a", 256<<10)}}},
	} {
		_, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true})
		var refusal *verdict.Refusal
		if !errors.As(err, &refusal) || refusal.Code != verdict.TooLarge {
			t.Errorf("too many %s: %v", name, err)
		}
	}
}

// A pod with long lists other than the list of containers is injected with a short patch. Injection and patch
// find elements of lists by hashes of their names, so that the time grows linearly.
func TestLongListsArePatched(t *testing.T) {
	const n = 20_000
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i", Command: []string{"/app"}}}}}
	c := &pod.Spec.Containers[0]
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		c.Env = append(c.Env, corev1.EnvVar{Name: name})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name})
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	r, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true})
	if err != nil || !r.Injected {
		t.Fatal(err)
	}
	if ops := r.Patch(); len(ops) > 40 {
		t.Errorf("%d operations, %v", len(ops), err)
	}
}

// If the result of an injection is no longer needed, the injection ends at the next step.
func TestInjectionIsInterrupted(t *testing.T) {
	gone := errors.New("gone")
	pod, steps := largePods(20)["complete"], 0
	o := Options{Manual: true, Interrupted: func() error { steps++; return nil }}
	if _, err := Pod(pod, Namespace{Name: "shop"}, o); err != nil || steps < 3 {
		t.Fatalf("%v after %d steps", err, steps)
	}
	for last := range steps {
		n := 0
		o.Interrupted = func() error {
			if n++; n > last {
				return gone
			}
			return nil
		}
		if _, err := Pod(pod, Namespace{Name: "shop"}, o); !errors.Is(err, gone) || n != last+1 {
			t.Errorf("interrupted at step %d: %v after %d", last+1, err, n)
		}
	}
}
