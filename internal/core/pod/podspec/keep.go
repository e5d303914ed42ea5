package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/startup"
)

// A Keep describes what our preStop hook in a proxy's container cannot tell when the pod stops.
type Keep struct {
	Proxy  string
	Unseen []string // containers without a gate for which the hook does not wait, because other sockets hide their ends
	Mixed  []string // other proxies whose sockets are not told from those of applications: the hook waits for them, too
}

// Keeps returns one for each of our preStop hooks in the pod, as the containers run; see [AsRun].
func Keeps(pod *corev1.Pod) []Keep {
	run := AsRun(pod)
	ungated, _ := Unseen(pod)
	var out []Keep
	for _, c := range podContainers(run) {
		line, has := stopLine(c.Container)
		if !has || c.kind != startup.Plain {
			continue
		}
		k := Keep{Proxy: c.Name, Unseen: ungated}
		if line.Sockets {
			k.Unseen = nil
			_, k.Mixed = otherProxies(run, c.Name, ungated)
		}
		out = append(out, k)
	}
	return out
}

// Parks reports whether injection parks the pod's connections to another mesh's proxy.
func Parks(pod *corev1.Pod) bool {
	const flag = "--park-only"
	work, _ := NodeWork(pod)
	return slices.Contains(work.Capture, flag) || slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == contract.InitContainer && slices.Contains(c.Args, flag)
	})
}

// Unkept returns the proxies of other meshes to which the pod's connections are parked, and which nothing keeps until
// the applications have ended: regular containers without a gate and without our preStop hook. When one of them has
// left, a call of an application waits until the application is killed, unless a gate of the pod ends the parking.
func Unkept(pod *corev1.Pod) []string {
	if !Parks(pod) {
		return nil
	}
	var out []string
	for _, c := range podContainers(AsRun(pod)) {
		if c.kind == startup.Plain && c.Name != OurProxy && knownproxy.IsMeshProxy(pod, c.Container) && !Gated(c.Container) && !StaysUntilEnd(c.Container) {
			out = append(out, c.Name)
		}
	}
	return out
}
