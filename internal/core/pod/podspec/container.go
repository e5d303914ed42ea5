package podspec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/startup"
)

// OurProxy is the name of the proxy container that injection adds.
const OurProxy = contract.ProxyContainer

// A podContainer is a container of a pod and its position there.
type podContainer struct {
	*corev1.Container
	kind startup.Kind
	at   int // index in [reader].all

	list  string // name of the list in the pod's spec
	index int    // index in that list
}

// field returns the container's path in the pod, such as spec.containers[1], for messages.
func (c podContainer) field() string { return "spec." + c.list + "[" + strconv.Itoa(c.index) + "]" }

// podContainers returns all containers of the pod, init containers first.
func podContainers(pod *corev1.Pod) []podContainer {
	out := make([]podContainer, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := startup.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = startup.Sidecar
		}
		out = append(out, podContainer{c, kind, len(out), "initContainers", i})
	}
	for i := range pod.Spec.Containers {
		out = append(out, podContainer{&pod.Spec.Containers[i], startup.Plain, len(out), "containers", i})
	}
	return out
}

// argv returns the command line of c: command and args as one list.
func (c podContainer) argv() []string { return argvOf(c.Container) }

// argvOf returns the command line of c: command and args as one list. The list may have a hundred thousand words
// and share memory with c, so the caller must not change it.
func argvOf(c *corev1.Container) []string {
	switch {
	case len(c.Command) == 0:
		return slices.Clip(c.Args)
	case len(c.Args) == 0:
		return slices.Clip(c.Command)
	}
	return slices.Concat(c.Command, c.Args)
}

// argument returns word i of the command line of c; empty if there are fewer words.
func argument(c *corev1.Container, i int) string {
	for _, words := range [][]string{c.Command, c.Args} {
		if i < len(words) {
			return words[i]
		}
		i -= len(words)
	}
	return ""
}

// argField returns the path in the pod of word i of argv, such as spec.containers[1].args[0].
func (c podContainer) argField(i int) string {
	if i < len(c.Command) {
		return fmt.Sprintf("%s.command[%d]", c.field(), i)
	}
	return fmt.Sprintf("%s.args[%d]", c.field(), i-len(c.Command))
}

func (c podContainer) env(name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func (r *reader) container(c podContainer) startup.Container {
	_, isProxy := knownproxy.Named(c.Name)
	out := startup.Container{Name: c.Name, Kind: c.kind, Health: r.health(c), Named: isProxy}
	out.StopsAtOnce = leavesByItself(r.pod, c) && !StaysUntilEnd(c.Container) && r.gateWaitsFor(c.Name)
	if line, has := stopLine(c.Container); has && line.Sockets {
		out.Outlives, _ = Unseen(r.pod) // as in Keeps
	}
	if c.kind != startup.Sidecar {
		out.Restart = restart(r.pod.Spec.RestartPolicy, c.Container.RestartPolicy)
	}
	probes := []*corev1.Probe{startupProbe(c.Container), c.ReadinessProbe}
	switch out.Health {
	case startup.StartupProbe:
		probes = probes[:1]
	case startup.PostStart:
		probes = []*corev1.Probe{hookProbe(c)}
	}
	for _, p := range probes {
		if n := r.probeNeeds(c, p); n != "" && !slices.Contains(out.HealthNeeds, n) {
			out.HealthNeeds = append(out.HealthNeeds, n)
		}
	}
	return out
}

// hookProbe returns the probe that the postStart hook of c repeats until it succeeds, if that hook runs our
// agent; otherwise nil.
func hookProbe(c podContainer) *corev1.Probe {
	if !usesAgent(c.Container) {
		return nil
	}
	_, probe, _ := strings.Cut(strings.Join(c.Lifecycle.PostStart.Exec.Command, "\n"), "\n--probe\n")
	return decoded(probe)
}

func restart(pod corev1.RestartPolicy, own *corev1.ContainerRestartPolicy) startup.Restart {
	policy := string(pod)
	if own != nil {
		policy = string(*own)
	}
	switch policy {
	case "OnFailure":
		return startup.OnFailure
	case "Never":
		return startup.Never
	}
	return startup.Always
}

// health returns the probe or hook by which the container reports that it is healthy. For a sidecar the startup
// probe comes first, because the kubelet waits for it and never for readiness. For other containers the readiness
// probe comes first, because a container can become unready again.
func (r *reader) health(c podContainer) startup.Health {
	_, isProxy := knownproxy.Named(c.Name)
	first, second := startup.ReadinessProbe, startup.StartupProbe
	isFirst, isSecond := answers(c.Container, c.ReadinessProbe), answers(c.Container, startupProbe(c.Container))
	if c.kind == startup.Sidecar {
		first, second, isFirst, isSecond = second, first, isSecond, isFirst
	}
	switch {
	case neverStarts(c.Container):
		return startup.NoHealth
	case r.holdsItself(c):
		return startup.PostStart
	case isFirst:
		return first
	case isSecond:
		return second
	case isProxy:
		return startup.Report
	}
	return startup.NoHealth
}

// neverStarts reports whether a container has a startup probe that cannot succeed, because its port is missing.
// The kubelet then runs no other probe and finally restarts the container.
func neverStarts(c *corev1.Container) bool {
	p := startupProbe(c)
	return p != nil && !answers(c, p)
}

// ownProbe returns the probe that defines "healthy" for a container: its readiness probe, else its startup probe,
// else the known probe of a mesh's proxy; nil if it has none of these.
func ownProbe(c *corev1.Container) *corev1.Probe {
	if neverStarts(c) {
		return nil
	}
	if own := readyProbes(c); len(own) > 0 {
		return own[0]
	}
	if p, isProxy := knownproxy.Named(c.Name); isProxy {
		return p.Probe()
	}
	return nil
}

// probeNeeds returns the container without which the probe p of c fails, i.e. a mesh's proxy: Istio redirects
// HTTP probes of apps to the proxy, and some probes connect to it directly. The result is empty if there is none.
func (r *reader) probeNeeds(c podContainer, p *corev1.Probe) string {
	if p == nil || p.HTTPGet == nil {
		return ""
	}
	for _, name := range knownproxy.At(PortNumber(c.Container, p.HTTPGet.Port)) {
		if name != c.Name && r.has(name) {
			return name
		}
	}
	return ""
}

// PortNumber returns the number of a container's port that is given by name or number; 0 if the container
// declares no port of that name.
func PortNumber(c *corev1.Container, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return 0
}

// CommandLine returns the command line of a container, as far as it is known from the pod. If the pod sets only
// args that do not begin with a program, the name of the image is used as the program, since many images are named after
// their program.
func CommandLine(c *corev1.Container) []string {
	if len(c.Command) > 0 || len(c.Args) == 0 || !strings.HasPrefix(c.Args[0], "-") && !strings.Contains(c.Args[0], "://") && c.Args[0] != "clone" {
		return argvOf(c)
	}
	return slices.Concat([]string{ImageName(c.Image)}, c.Args)
}

// BehindGate is [CommandLine] of the command that the container's gate wraps, or of the container itself if it
// has no gate.
func BehindGate(c *corev1.Container) []string {
	own := c.DeepCopy()
	unwrap(own)
	return CommandLine(own)
}

// ImageName returns the last element of an image's repository, without tag and digest.
func ImageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := path.Base(image)
	name, _, _ = strings.Cut(name, ":")
	return name
}
