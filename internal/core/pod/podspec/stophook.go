package podspec

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// A proxy without a gate, such as another mesh's, gets SIGTERM together with the applications of the pod if it is a
// regular container. A preStop hook in it keeps it until they have ended ("outrider-agent pre-stop"): the kubelet runs
// the hook while it stops the other containers, and sends SIGTERM to the proxy when the hook has returned. A native
// sidecar needs no such hook, because the kubelet stops it last.

// leavesByItself reports whether nothing in a container delays its stop for those that need it: it is a proxy that
// has no gate, and not ours, whose agent does that.
func leavesByItself(pod *corev1.Pod, c podContainer) bool {
	return isProxy(pod, c.Container) && c.Name != OurProxy && c.kind == startup.Plain && !Gated(c.Container)
}

// isProxy reports whether a container is a proxy, of a mesh or of a cloud provider.
func isProxy(pod *corev1.Pod, c *corev1.Container) bool {
	return knownproxy.IsProxy(c) || knownproxy.IsMeshProxy(pod, c)
}

// gateWaitsFor reports whether a gate in the pod waits for the named container. An edge that is not written yet does not
// count, because writing it adds the hook.
func (r *reader) gateWaitsFor(name string) bool {
	return slices.ContainsFunc(r.all, func(c podContainer) bool {
		line, ok := gateLine(c.Container)
		_, waits := line.At[name]
		return ok && waits
	})
}

// writeStopHooks adds a preStop hook to each proxy that leaves by itself and that an edge by a gate, or the list of
// the writer, keeps until the others have ended.
func (w *writer) writeStopHooks(edges []startup.Edge) error {
	needed := map[string]bool{}
	for _, e := range edges {
		needed[e.From] = needed[e.From] || e.By == startup.Gate && e.After != startup.Completed
	}
	for _, c := range podContainers(w.out) {
		if leavesByItself(w.out, c) && (needed[c.Name] || slices.Contains(w.stays, c.Name)) {
			if err := w.stopHook(c.Container); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopHook adds the hook to c. The hook that c has already runs meanwhile.
func (w *writer) stopHook(c *corev1.Container) error {
	dropStopHook(c)
	known, _ := knownproxy.Named(c.Name)
	run := withGates(w.out, w.work)
	ungated, sidecars := Unseen(run)
	line := contract.PreStop{Name: c.Name, At: healthURL(w.out, c), StopGrace: w.stopGrace()}
	if len(ungated) > 0 && len(sidecars) == 0 {
		line.Sockets = true
		line.Apart, _ = otherProxies(run, c.Name, ungated)
	}
	if answers(c, c.LivenessProbe) {
		text, err := marshal(numbered(c).LivenessProbe)
		if err != nil {
			return err
		}
		line.Live = text
	}
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	switch own := numbered(c).Lifecycle.PreStop; {
	case own != nil:
		text, err := marshal(own)
		if err != nil {
			return err
		}
		line.Hook = text
	case known.Drain != "":
		line.Drain = fmt.Sprintf("http://127.0.0.1:%d%s", contract.StatusPortOf(w.out.Annotations), known.Drain)
	}
	c.Lifecycle.PreStop = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: append([]string{AgentPath}, line.Args()...)}}
	if err := w.shareAgent(c); err != nil {
		return err
	}
	if err := w.readStates(c); err != nil {
		return err
	}
	return w.addGateVolumes() // must be last: it may move the list that contains c
}

// Unseen returns the regular containers without a gate, whose ends no record shows, and the native sidecars that may have
// sockets until the end of the pod. Proxies are left out. Without sidecars the sockets in the pod show whether such
// containers still run.
func Unseen(pod *corev1.Pod) (ungated, sidecars []string) {
	for _, c := range podContainers(AsRun(pod)) {
		switch {
		case isProxy(pod, c.Container):
		case c.kind == startup.Sidecar:
			sidecars = append(sidecars, c.Name)
		case c.kind == startup.Plain && !Gated(c.Container):
			ungated = append(ungated, c.Name)
		}
	}
	return ungated, sidecars
}

// otherProxies returns the users of the other proxies of the pod, whose sockets show nothing about applications, and the
// proxies whose user is not known. A user that a container without a gate has, too, does not count.
func otherProxies(pod *corev1.Pod, name string, ungated []string) (users []uint32, unknown []string) {
	shared := map[int64]bool{}
	for _, c := range podContainers(pod) {
		if id, ok := userOf(pod, c.Container); ok && slices.Contains(ungated, c.Name) {
			shared[id] = true
		}
	}
	for _, c := range podContainers(pod) {
		if c.Name == name || c.kind == startup.Init || !isProxy(pod, c.Container) {
			continue
		}
		id, ok := userOf(pod, c.Container)
		switch {
		case !ok || shared[id] || id < 0 || id > math.MaxUint32:
			unknown = append(unknown, c.Name)
		case !slices.Contains(users, uint32(id)):
			users = append(users, uint32(id))
		}
	}
	return users, unknown
}

// userOf returns the user of a container's processes; false if only its image sets it.
func userOf(pod *corev1.Pod, c *corev1.Container) (int64, bool) {
	if own := c.SecurityContext; own != nil && own.RunAsUser != nil {
		return *own.RunAsUser, true
	}
	if shared := pod.Spec.SecurityContext; shared != nil && shared.RunAsUser != nil {
		return *shared.RunAsUser, true
	}
	m, known := knownproxy.MeshOf(c.Name)
	return m.User, known
}

// stopLine returns the parsed command line of our preStop hook in c; false if c has none.
func stopLine(c *corev1.Container) (contract.PreStop, bool) {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil {
		return contract.PreStop{}, false
	}
	command := c.Lifecycle.PreStop.Exec.Command
	if len(command) == 0 || command[0] != AgentPath {
		return contract.PreStop{}, false
	}
	return contract.ParsePreStop(command[1:])
}

// StaysUntilEnd reports whether c has our preStop hook, which returns when the containers that need c have ended.
func StaysUntilEnd(c *corev1.Container) bool {
	_, has := stopLine(c)
	return has
}

// OwnPreStop returns the preStop hook of c, or the one that runs beside our hook; nil if there is none.
func OwnPreStop(c *corev1.Container) *corev1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	line, ours := stopLine(c)
	var own corev1.LifecycleHandler
	switch {
	case !ours:
		return c.Lifecycle.PreStop
	case json.Unmarshal([]byte(line.Hook), &own) != nil:
		return nil
	}
	return &own
}

// PreStopSleep returns the time for which the preStop hook of c sleeps, or the one that runs beside our hook; 0 if it does
// not sleep.
func PreStopSleep(c *corev1.Container) time.Duration {
	switch own := OwnPreStop(c); {
	case own == nil:
	case own.Sleep != nil:
		return time.Duration(min(max(own.Sleep.Seconds, 0), math.MaxInt32)) * time.Second
	case own.Exec != nil:
		return shell.Sleeps(own.Exec.Command)
	}
	return 0
}

// dropStopHook removes our preStop hook from c, and restores the one that c had before.
func dropStopHook(c *corev1.Container) {
	if !StaysUntilEnd(c) {
		return
	}
	c.Lifecycle.PreStop = OwnPreStop(c)
	dropGateMounts(c)
	dropEmptyLifecycle(c)
}

func dropEmptyLifecycle(c *corev1.Container) {
	if l := c.Lifecycle; l.PostStart == nil && l.PreStop == nil && l.StopSignal == nil {
		c.Lifecycle = nil
	}
}
