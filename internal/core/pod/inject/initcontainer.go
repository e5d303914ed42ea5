package inject

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/merge"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// writeInit adds our init container, which captures connections, or copies the agent for the gates, or both.
// With the annotation "outrider.dev/init: none" the proxy does that work if it can.
func writeInit(pod *corev1.Pod, in input, s effective, edges startup.Plan, r *verdict.Report) error {
	gates := s.init != contract.InitVolume && slices.ContainsFunc(containers.Authors(pod), podspec.NeedsAgent)     // gates need a copy of the agent
	pod.Spec.InitContainers = slices.DeleteFunc(pod.Spec.InitContainers, containers.Named(contract.InitContainer)) // package podspec added one that only copies the agent
	own, hasOwn := in.own.find(contract.InitContainer)
	if !s.capture && !gates {
		if hasOwn {
			r.Warn("the pod's own container %s is left out: nothing is captured and no command is wrapped", contract.InitContainer)
		}
		return nil
	}
	if s.init == contract.InitNone {
		why := whyInit(pod, in, s, edges)
		if why == "" {
			return writeStage(pod, in, s, r)
		}
		r.Ignored(contract.Init, why)
		r.Warn("annotation %s: none has no effect, and the pod has %s: %s", contract.Init, contract.InitContainer, why)
	}
	c := in.initContainer(s, gates)
	if hasOwn {
		var err error
		needed := c.SecurityContext
		if c, err = merge.Container(c, own); err != nil {
			return err
		}
		keepRoot(&c, needed, r)
		if c.Lifecycle != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil || c.StartupProbe != nil || c.ResizePolicy != nil || c.Ports != nil {
			r.Warn("hooks, probes, ports and resizePolicy of the pod's own container %s are left out: it is an init container, which completes", own.Name)
			c.Lifecycle, c.ReadinessProbe, c.LivenessProbe, c.StartupProbe, c.ResizePolicy, c.Ports = nil, nil, nil, nil, nil, nil
		}
	}
	pod.Spec.InitContainers = slices.Insert(pod.Spec.InitContainers, initPlace(pod, s, r), c)
	return nil
}

// initPlace returns the index at which our init container is inserted. Our init container must precede a proxy
// in the list, and the first container that runs our agent. Otherwise it comes last: the author's init
// containers then run before the proxy and use the network without capture.
func initPlace(pod *corev1.Pod, s effective, r *verdict.Report) int {
	list := pod.Spec.InitContainers
	at := slices.IndexFunc(list, func(c corev1.Container) bool {
		return c.Name == contract.ProxyContainer || knownproxy.OtherMesh(c.Name) || podspec.NeedsAgent(&c)
	})
	if at < 0 {
		at = len(list)
	}
	if s.proxy && s.capture && !slices.ContainsFunc(list, containers.Named(contract.ProxyContainer)) {
		if at > 0 {
			r.Warn("the init containers up to %s are outside the mesh: they run before the capture, since the proxy is a plain container", list[at-1].Name)
		}
		if at < len(list) {
			r.Warn("the init containers from %s on run with their connections captured and no proxy: what they call waits until they give up", list[at].Name)
		}
	}
	return at
}

func (in input) initContainer(s effective, gates bool) corev1.Container {
	c := corev1.Container{
		Name: contract.InitContainer, Image: s.initImage, ImagePullPolicy: s.pull,
		Resources:                *s.resources.DeepCopy(),
		SecurityContext:          in.initSecurity(s),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if gates {
		c.VolumeMounts = []corev1.VolumeMount{{Name: contract.BinVolume, MountPath: contract.BinDir}}
	}
	if !s.capture {
		c.Args = []string{"copy", contract.AgentPath}
		return c
	}
	c.Args = []string{"init"}
	if gates {
		c.Args = append(c.Args, "--copy", contract.AgentPath)
	}
	c.Args = append(c.Args, in.captureFlags(s)...)
	e := &containers.Environment{}
	for _, name := range slices.Sorted(maps.Keys(s.config.ProxyMetadata)) {
		e.Set(name, string(s.config.ProxyMetadata[name]))
	}
	c.Env = e.List
	return c
}

// captureFlags returns the flags of istio-iptables that the settings require, and our flag --park.
func (in input) captureFlags(s effective) []string {
	a, v := in.pod.Annotations, in.o.Values.Global.Proxy
	var flags []string
	if p, ok := a[contract.Park]; ok {
		flags = append(flags, "--park", p)
	}
	if !s.proxy {
		return append(flags, "--park-only")
	}
	pick := func(key string, mesh settings.Text) (string, bool) {
		if s, ok := a[contract.IstioTraffic+key]; ok {
			return s, true
		}
		return string(mesh), mesh != ""
	}
	orAll := func(s string, set bool) string {
		if set {
			return s
		}
		return "*"
	}
	exclude := []string{strconv.Itoa(contract.PrometheusPort), strconv.Itoa(contract.ReadinessPort)}
	list, _ := pick("excludeInboundPorts", v.ExcludeInboundPorts)
	exclude = append(exclude, settings.Items(list)...)
	if status := strconv.Itoa(int(s.port)); !slices.Contains(exclude, status) {
		exclude = append(exclude, status)
	}
	excludeRanges, _ := pick("excludeOutboundIPRanges", v.ExcludeIPRanges)
	flags = append(flags, "-p", strconv.Itoa(contract.OutboundPort), "-z", strconv.Itoa(contract.InboundPort),
		"-u", strconv.FormatInt(s.uid, 10), "-g", strconv.FormatInt(s.gid, 10), "-m", s.mode,
		"-i", orAll(pick("includeOutboundIPRanges", v.IncludeIPRanges)),
		"-x", excludeRanges,
		"-b", orAll(pick("includeInboundPorts", v.IncludeInboundPorts)),
		"-d", strings.Join(exclude, ","))
	for _, f := range []struct {
		flag, key string
		mesh      settings.Text
	}{
		{"-q", "includeOutboundPorts", v.IncludeOutboundPorts},
		{"-o", "excludeOutboundPorts", v.ExcludeOutboundPorts},
		{"-c", "excludeInterfaces", v.ExcludeInterfaces},
	} {
		if list, ok := pick(f.key, f.mesh); ok {
			flags = append(flags, f.flag, list)
		}
	}
	for _, key := range []string{settings.RerouteKey, settings.KubevirtKey} {
		if guests, ok := a[key]; ok {
			flags = append(flags, "-k", guests)
			break
		}
	}
	if in.o.Values.Global.NativeNftables && !s.byNode() { // the node chooses the backend by itself
		flags = append(flags, "--native-nftables")
	}
	return flags
}
