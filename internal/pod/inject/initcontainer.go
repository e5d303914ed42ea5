package inject

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
)

// addInit makes the one init container of ours: it captures, and copies the gate, or does
// one of the two, or is not there at all.
func (in *injection) addInit() error {
	gates := false
	in.each(func(c *corev1.Container) { gates = gates || podspec.NeedsAgent(c) })
	in.pod.Spec.InitContainers = slices.DeleteFunc(in.pod.Spec.InitContainers, named(initName)) // podspec's, which only copies
	if !in.settings.capture && !gates {
		if _, own := in.own[initName]; own {
			in.warn("the pod's own container %s is left out: nothing is captured and no command is wrapped", initName)
		}
		return nil
	}
	if in.pod.Annotations[initKey] == "none" {
		why := in.whyInit()
		if why == "" {
			return in.stage()
		}
		in.idle(initKey, why)
		in.warn("annotation %s: none has no effect, and the pod has %s: %s", initKey, initName, why)
	}
	c := in.initContainer(gates)
	if own, ok := in.own[initName]; ok {
		var err error
		if c, err = merged(c, own); err != nil {
			return err
		}
	}
	in.pod.Spec.InitContainers = slices.Insert(in.pod.Spec.InitContainers, in.initPlace(), c)
	return nil
}

// initPlace: before a proxy in the init list, ours or another mesh's; else last, so that the user's own init
// containers still have the plain network; but before the first one that runs our agent.
func (in *injection) initPlace() int {
	list := in.pod.Spec.InitContainers
	for i := range list {
		if list[i].Name != proxyName && !slices.Contains(otherMeshes, list[i].Name) && !podspec.NeedsAgent(&list[i]) {
			continue
		}
		if in.settings.proxy && in.settings.capture && !slices.ContainsFunc(list, named(proxyName)) {
			in.warn("the init containers from %s on run with their connections captured and no proxy: what they call waits until they give up", list[i].Name)
		}
		return i
	}
	return len(list)
}

func (in *injection) initContainer(gates bool) corev1.Container {
	s := in.settings
	c := corev1.Container{
		Name: initName, Image: s.initImage, ImagePullPolicy: s.pull,
		Resources:                *s.resources.DeepCopy(),
		SecurityContext:          in.initSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if gates {
		c.VolumeMounts = []corev1.VolumeMount{{Name: podspec.BinVolume, MountPath: podspec.BinDir}}
	}
	if !s.capture {
		c.Args = []string{"copy", podspec.AgentPath}
		return c
	}
	c.Args = []string{"init"}
	if gates {
		c.Args = append(c.Args, "--copy", podspec.AgentPath)
	}
	c.Args = append(c.Args, in.captureFlags()...)
	e := &environment{}
	for _, name := range sortedKeys(s.config.ProxyMetadata) {
		e.set(name, s.config.ProxyMetadata[name])
	}
	c.Env = e.list
	return c
}

// captureFlags are istio-iptables' own, and how early connections wait.
func (in *injection) captureFlags() []string {
	a, v, s := in.pod.Annotations, in.o.Values.Global.Proxy, in.settings
	var flags []string
	if p, ok := a[parkKey]; ok {
		flags = append(flags, "--park", p)
	}
	if !s.proxy {
		return append(flags, "--park-only")
	}
	pick := func(key string, mesh *text) (string, bool) {
		if s, ok := a[key]; ok {
			return s, true
		}
		if mesh != nil && *mesh != "" {
			return string(*mesh), true
		}
		return "", false
	}
	everything := func(s string, given bool) string {
		if given {
			return s
		}
		return "*"
	}
	exclude := []string{strconv.Itoa(prometheusPort), strconv.Itoa(readinessPort)}
	if list, ok := pick(traffic+"excludeInboundPorts", v.ExcludeInboundPorts); ok {
		exclude = append(exclude, items(list)...)
	}
	if status := strconv.Itoa(int(s.status)); !slices.Contains(exclude, status) {
		exclude = append(exclude, status)
	}
	excludeRanges, _ := pick(traffic+"excludeOutboundIPRanges", v.ExcludeIPRanges)
	flags = append(flags, "-p", "15001", "-z", "15006", "-u", strconv.FormatInt(s.uid, 10), "-g", strconv.FormatInt(s.gid, 10), "-m", s.mode,
		"-i", everything(pick(traffic+"includeOutboundIPRanges", v.IncludeIPRanges)),
		"-x", excludeRanges,
		"-b", everything(pick(traffic+"includeInboundPorts", v.IncludeInboundPorts)),
		"-d", strings.Join(exclude, ","))
	for _, f := range []struct {
		flag, key string
		mesh      *text
	}{
		{"-q", traffic + "includeOutboundPorts", v.IncludeOutboundPorts},
		{"-o", traffic + "excludeOutboundPorts", v.ExcludeOutboundPorts},
		{"-c", traffic + "excludeInterfaces", v.ExcludeInterfaces},
	} {
		if list, ok := pick(f.key, f.mesh); ok {
			flags = append(flags, f.flag, list)
		}
	}
	guests, ok := a[rerouteKey]
	if !ok {
		guests, ok = a[kubevirtKey]
	}
	if ok {
		flags = append(flags, "-k", guests)
	}
	if in.o.Values.Global.NativeNftables {
		flags = append(flags, "--native-nftables")
	}
	return flags
}

// initSecurity: NET_ADMIN alone writes the rules; the root file system stays as it is
// (test/cluster). One that only copies needs nothing at all.
func (in *injection) initSecurity() *corev1.SecurityContext {
	no, yes, root, uid, gid := false, true, int64(0), in.settings.uid, in.settings.gid
	out := &corev1.SecurityContext{
		RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no,
		Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		SeccompProfile: in.seccomp(),
	}
	if !in.settings.capture {
		out.RunAsUser, out.RunAsGroup, out.RunAsNonRoot, out.Capabilities.Add = &uid, &gid, &yes, nil
	}
	return out
}
