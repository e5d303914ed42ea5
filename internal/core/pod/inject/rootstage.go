package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// whyInit returns the reason why the pod needs outrider-init in spite of the annotation "outrider.dev/init:
// none". It is empty if the proxy can do the work of outrider-init. For that work the proxy must be allowed to
// run as root for a while, nothing may run before it, and a gate must hold every other container. Also, the
// kubelet must restart containers, because a container fails to start if the agent is not copied yet.
func whyInit(pod *corev1.Pod, in input, s effective, edges startup.Plan) string {
	list := pod.Spec.Containers
	_, ownInit := in.own.find(contract.InitContainer)
	ownProxy, _ := in.own.find(contract.ProxyContainer)
	undone := len(ownProxy.Command)+len(ownProxy.Args) > 0 || ownProxy.SecurityContext != nil
	for _, c := range []struct {
		holds bool
		why   string
	}{
		{!s.proxy, "there is no Outrider proxy to do its work"},
		{!s.capture, "nothing is captured, and " + contract.InitContainer + " only copies, without a privilege"},
		{s.mode == settings.TProxy, "in interceptionMode TPROXY the proxy keeps NET_ADMIN"},
		{in.pod.Annotations[settings.BindKey] == "true", "the proxy keeps a capability (" + settings.BindKey + ")"},
		{!restarts(pod), "restartPolicy is not Always: a container that is started before its gate is there is not started again"},
		{len(pod.Spec.InitContainers) > 0, "the init containers would run before the connections are captured"},
		{ownInit, "the pod has its own container of that name"},
		{list[0].Name != contract.ProxyContainer, "the proxy is not the first container"},
		{undone, "the pod's own container " + contract.ProxyContainer + " sets a command, arguments or a security context"},
		{rootsOnly(pod), "every container runs as root, and the kubelet makes the proxy's token root's alone unless the pod has an fsGroup"},
	} {
		if c.holds {
			return c.why
		}
	}
	for _, c := range list[1:] {
		if !held(edges, c.Name) {
			return fmt.Sprintf("no gate holds %s until the proxy has captured", c.Name)
		}
	}
	return ""
}

// restarts reports whether the kubelet starts every container again, whatever its exit code.
func restarts(pod *corev1.Pod) bool {
	policy := pod.Spec.RestartPolicy
	return (policy == "" || policy == corev1.RestartPolicyAlways) && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
}

// rootsOnly reports whether all other containers run as root by their security contexts, as the proxy would too.
// If all containers of a pod have the same user, the kubelet makes that user the owner of the token files, with
// mode 0600. Source: pkg/volume/util FsUserFrom and pkg/volume/projected of kubernetes v1.34.4; observed on that
// version.
func rootsOnly(pod *corev1.Pod) bool {
	shared := pod.Spec.SecurityContext
	if shared != nil && shared.FSGroup != nil {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(pod.Spec.Containers), containers.Named(contract.ProxyContainer))
	return !slices.ContainsFunc(others, func(c corev1.Container) bool {
		var user *int64
		if shared != nil {
			user = shared.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		return user == nil || *user != 0
	})
}

// held reports whether gates keep a container's command from running until the proxy has dropped its privileges:
// the gate waits for the proxy, or for a container that is itself held.
func held(edges startup.Plan, name string) bool {
	return slices.ContainsFunc(edges.Edges, func(e startup.Edge) bool {
		closed := e.By == startup.Gate && !e.Optional && e.OnTimeout != startup.Continue
		return e.To == name && closed && (e.From == contract.ProxyContainer || held(edges, e.From)) // the plan has no cycle
	})
}

// writeStage lets the proxy do the work of outrider-init first, as root, and then drop its privileges.
func writeStage(pod *corev1.Pod, in input, s effective, r *verdict.Report) error {
	c := containers.Find(pod, contract.ProxyContainer)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		r.Warn("the postStart hook that is set for %s is left out: the others start after the hook that waits for the capture, and a container can have one only", contract.ProxyContainer)
	}
	flags := in.captureFlags(s)
	if groups := podGroups(pod); len(groups) > 0 {
		flags = append(flags, "--groups", strings.Join(groups, ","))
	}
	if err := podspec.WriteStage(c, flags); err != nil {
		return taken(err)
	}
	c.SecurityContext = in.initSecurity(s)
	asRoot(c.SecurityContext, "SETUID", "SETGID", "SETPCAP") // needed to become the proxy's user
	r.Note("annotation %s: none: %s captures and copies the gate by itself, and its postStart hook waits for that alone", contract.Init, contract.ProxyContainer)
	r.Warn("annotation %s: none: kubectl exec into %s is root with NET_ADMIN, SETUID, SETGID and SETPCAP, whatever its first process has given up", contract.Init, contract.ProxyContainer)
	return nil
}

// podGroups returns the supplementary groups that the pod gives every container; the proxy needs them to read its
// token. The root stage drops other groups that root has in the image.
func podGroups(pod *corev1.Pod) []string {
	s := pod.Spec.SecurityContext
	if s == nil {
		return nil
	}
	var out []string
	for _, g := range s.SupplementalGroups {
		out = append(out, strconv.FormatInt(g, 10))
	}
	if s.FSGroup != nil {
		out = append(out, strconv.FormatInt(*s.FSGroup, 10))
	}
	return out
}
