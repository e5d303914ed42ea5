package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// whyInit is why the pod needs outrider-init, although it asks for none; empty if the
// proxy can do its work (annotation outrider.dev/init: none). What must hold: the proxy is
// root for a while, nothing runs before it, and what starts without it is held by a gate,
// or has no program to run and is started again.
func (in *injection) whyInit() string {
	s := in.settings
	list := in.pod.Spec.Containers
	_, ownInit := in.own[initName]
	for _, c := range []struct {
		holds bool
		why   string
	}{
		{!s.proxy, "there is no proxy of ours to do its work"},
		{!s.capture, "nothing is captured, and " + initName + " only copies, without a privilege"},
		{s.mode == tproxy, "in interceptionMode TPROXY the proxy keeps NET_ADMIN"},
		{in.pod.Annotations[bindKey] == "true", "the proxy keeps a capability (" + bindKey + ")"},
		{!in.restarts(), "restartPolicy is not Always: a container that is started before its gate is there is not started again"},
		{len(in.pod.Spec.InitContainers) > 0, "the init containers would run before the connections are captured"},
		{ownInit, "the pod has its own container of that name"},
		{list[0].Name != proxyName, "the proxy is not the first container"},
		{in.ownProxy(), "the pod's own container " + proxyName + " sets a command, arguments or a security context"},
		{in.rootsOnly(), "every container runs as root, and the kubelet makes the proxy's token root's alone unless the pod has an fsGroup"},
	} {
		if c.holds {
			return c.why
		}
	}
	for _, c := range list[1:] {
		if !in.held(c.Name) {
			return fmt.Sprintf("no gate holds %s until the proxy has captured", c.Name)
		}
	}
	return ""
}

// restarts says whether the kubelet starts every container again, whatever its exit code.
func (in *injection) restarts() bool {
	policy := in.pod.Spec.RestartPolicy
	return (policy == "" || policy == corev1.RestartPolicyAlways) && !slices.ContainsFunc(in.pod.Spec.Containers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
}

// ownProxy says whether the author's own container of the proxy's name would undo the stage.
func (in *injection) ownProxy() bool {
	own := in.own[proxyName]
	return len(own.Command)+len(own.Args) > 0 || own.SecurityContext != nil
}

// rootsOnly says whether all containers say that they run as root, as the proxy then does:
// for a single user the kubelet makes the files of a token that user's, mode 0600.
// Source: pkg/volume/util FsUserFrom and pkg/volume/projected of kubernetes v1.34.4; seen there.
func (in *injection) rootsOnly() bool {
	shared := in.pod.Spec.SecurityContext
	if shared != nil && shared.FSGroup != nil {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(in.pod.Spec.Containers), named(proxyName))
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

// held says whether a gate keeps a container's command from running before the proxy runs
// unprivileged, by itself or by those that it waits for.
func (in *injection) held(name string) bool {
	return slices.ContainsFunc(in.status.plan.Edges, func(e startup.Edge) bool {
		closed := e.By == startup.Gate && !e.Optional && e.OnTimeout != startup.Continue
		return e.To == name && closed && (e.From == proxyName || in.held(e.From)) // the plan has no cycle
	})
}

// stage makes the proxy do what outrider-init does, before it gives its privileges up.
func (in *injection) stage() error {
	c := find(in.pod, proxyName)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		in.warn("the postStart hook that is set for %s is left out: the others start after the hook that waits for the capture, and a container can have one only", proxyName)
	}
	flags := in.captureFlags()
	if groups := in.podGroups(); len(groups) > 0 {
		flags = append(flags, "--groups", strings.Join(groups, ","))
	}
	if err := podspec.WriteStage(c, flags); err != nil {
		return clashing(err)
	}
	c.SecurityContext = in.stageSecurity()
	in.note("annotation %s: none: %s captures and copies the gate by itself, and its postStart hook waits for that alone", initKey, proxyName)
	in.warn("annotation %s: none: kubectl exec into %s is root with NET_ADMIN, SETUID, SETGID and SETPCAP, whatever its first process has given up", initKey, proxyName)
	return nil
}

// podGroups are the groups that the pod gives every container, by which the proxy can read
// its token: the stage drops those that an image gives root.
func (in *injection) podGroups() []string {
	s := in.pod.Spec.SecurityContext
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

// stageSecurity is that of outrider-init, and what it takes to become the proxy's user.
func (in *injection) stageSecurity() *corev1.SecurityContext {
	out := in.initSecurity()
	out.Capabilities.Add = append(out.Capabilities.Add, "SETUID", "SETGID", "SETPCAP")
	return out
}
