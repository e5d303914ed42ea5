package localpod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// A spec is a container of the pod with everything that is needed to start it.
type spec struct {
	*corev1.Container
	order   containerinit.Order
	message string // path of its termination message on the node
}

// check returns an error for each part of the pod that cannot be run, before any part of it is created.
func (f facts) check() error {
	_, err := f.specs("/", nil)
	_, volumes := f.volumes()
	return errors.Join(f.Options.check(), err, volumes)
}

// specs returns the specs of the pod's containers. dir is the pod's directory on the node; host are the mount
// points of this machine to show.
func (f facts) specs(dir string, host []string) ([]spec, error) {
	var out []spec
	var all []error
	for _, c := range containersOf(&f.Pod) {
		s, err := f.spec(c, path.Join(dir, "containers", c.Name), path.Join(dir, "volumes"))
		s.order.Root.Host = host
		out, all = append(out, s), append(all, err)
	}
	return out, errors.Join(all...)
}

func (f facts) spec(c carrier, dir, volumes string) (spec, error) {
	env, vars, envErr := f.environment(c)
	user, userErr := f.userOf(c)
	argv, argvErr := f.argv(c, vars)
	mounts, mountErr := f.mounts(c, volumes, vars)
	s := spec{Container: c.Container, message: path.Join(dir, "message")}
	mounts = append(mounts, containerinit.Mount{From: s.message, To: cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)},
		containerinit.Mount{From: path.Join(volumes, "..", "shm"), To: "/dev/shm"})
	// Sort by depth, because a mount must come after the mount that contains its mount point.
	slices.SortStableFunc(mounts, func(a, b containerinit.Mount) int {
		return cmp.Compare(strings.Count(path.Clean(a.To), "/"), strings.Count(path.Clean(b.To), "/"))
	})
	s.order = containerinit.Order{
		Process: containerinit.Process{Argv: argv, Env: env, Dir: expand(c.WorkingDir, vars), User: user},
		Root: &containerinit.Root{Stage: path.Join(dir, "stage"), Overlay: true, Mounts: mounts, Files: f.files(),
			Privileged: privileged(c), ReadOnly: c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem},
	}
	return s, errors.Join(argvErr, envErr, userErr, mountErr, checkHandlers(c))
}

// argv returns the container's command and arguments. Without a command in the pod spec, it takes that of the
// image from Options.Entrypoints.
func (f facts) argv(c carrier, vars map[string]string) ([]string, error) {
	command := c.Command
	if len(command) == 0 {
		command = f.Entrypoints[c.Image]
	}
	if len(command) == 0 {
		return nil, refuse(c.field+".command", "container %s has none, and there are no images here", c.Name).
			but("write the command of image %q, as it is on this machine, into the pod, or give it as the image's entrypoint", c.Image)
	}
	return append(expandAll(command, vars), expandAll(c.Args, vars)...), nil
}

func (f facts) mounts(c carrier, volumes string, vars map[string]string) ([]containerinit.Mount, error) {
	var out []containerinit.Mount
	var all []error
	for _, b := range f.Binds {
		out = append(out, containerinit.Mount{From: b.From, To: b.To, ReadOnly: true})
	}
	for i, m := range c.VolumeMounts {
		field := fmt.Sprintf("%s.volumeMounts[%d]", c.field, i)
		found := slices.IndexFunc(f.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		switch {
		case found < 0:
			all = append(all, refuse(field+".name", "the pod has no volume %q", m.Name))
			continue
		case !path.IsAbs(m.MountPath) || path.Clean(m.MountPath) == "/":
			all = append(all, refuse(field+".mountPath", "%q", m.MountPath).but("want an absolute path below /"))
			continue
		}
		from := path.Join(volumes, m.Name)
		if h := f.Pod.Spec.Volumes[found].HostPath; h != nil {
			from = realPath(h.Path)
		}
		out = append(out, containerinit.Mount{From: from, Sub: cmp.Or(m.SubPath, expand(m.SubPathExpr, vars)), To: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return out, errors.Join(all...)
}

// files returns the files that the kubelet writes for a container. Source: pkg/kubelet/kubelet_pods.go
// ensureHostsFile of kubernetes v1.34.4.
func (f facts) files() []containerinit.File {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	for _, a := range f.addrs {
		hosts += fmt.Sprintf("%s\t%s\n", a, f.hostname())
	}
	for _, h := range f.Pod.Spec.HostAliases {
		hosts += h.IP + "\t" + strings.Join(h.Hostnames, "\t") + "\n"
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hosts)) {
		hosts += f.Hosts[name] + "\t" + name + "\n"
	}
	return []containerinit.File{
		{Path: "/etc/hosts", Data: []byte(hosts), Mode: 0o644},
		{Path: "/etc/hostname", Data: []byte(f.hostname() + "\n"), Mode: 0o644},
		{Path: "/etc/resolv.conf", Data: f.resolvConf(), Mode: 0o644},
	}
}

// resolvConf returns the content of resolv.conf: the pod's dnsConfig or, without one, this machine's file.
func (f facts) resolvConf() []byte {
	d := f.Pod.Spec.DNSConfig
	if d == nil {
		data, _ := os.ReadFile("/etc/resolv.conf") // without the file, the container has an empty one
		return data
	}
	var b strings.Builder
	for _, n := range d.Nameservers {
		b.WriteString("nameserver " + n + "\n")
	}
	if len(d.Searches) > 0 {
		b.WriteString("search " + strings.Join(d.Searches, " ") + "\n")
	}
	for _, o := range d.Options {
		b.WriteString("options " + o.Name)
		if o.Value != nil {
			b.WriteString(":" + *o.Value)
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}

// A handler is the action of a hook or a probe. At most one of its fields is set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func ofHook(h *corev1.LifecycleHandler) handler {
	if h == nil {
		return handler{}
	}
	return handler{exec: h.Exec, http: h.HTTPGet, tcp: h.TCPSocket, sleep: h.Sleep}
}

func ofProbe(p *corev1.Probe) handler {
	if p == nil {
		return handler{}
	}
	return handler{exec: p.Exec, http: p.HTTPGet, tcp: p.TCPSocket, grpc: p.GRPC}
}

// handlers maps the paths of a container's hooks and probes to their handlers.
func handlers(c *corev1.Container) map[string]handler {
	out := map[string]handler{"startupProbe": ofProbe(c.StartupProbe), "livenessProbe": ofProbe(c.LivenessProbe), "readinessProbe": ofProbe(c.ReadinessProbe)}
	if c.Lifecycle != nil {
		out["lifecycle.postStart"], out["lifecycle.preStop"] = ofHook(c.Lifecycle.PostStart), ofHook(c.Lifecycle.PreStop)
	}
	return out
}

// checkHandlers returns an error for hooks and probes with the name of a port that the container does not
// declare. [validation.Check] finds their other mistakes.
func checkHandlers(c carrier) error {
	var all []error
	for _, where := range slices.Sorted(maps.Keys(handlers(c.Container))) {
		h := handlers(c.Container)[where]
		field := c.field + "." + where
		if h.http != nil && h.http.Port.Type == intstr.String {
			_, err := portOf(field+".httpGet.port", c.Container, h.http.Port)
			all = append(all, err)
		}
		if h.tcp != nil && h.tcp.Port.Type == intstr.String {
			_, err := portOf(field+".tcpSocket.port", c.Container, h.tcp.Port)
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// portOf returns the number of a port, which may be the name of a port of the container.
func portOf(field string, c *corev1.Container, p intstr.IntOrString) (int, error) {
	number := p.IntValue()
	if p.Type == intstr.String {
		names := map[string]int{}
		for _, port := range c.Ports {
			names[port.Name] = int(port.ContainerPort)
		}
		if n, ok := names[p.StrVal]; ok {
			return n, nil
		}
		if number == 0 {
			return 0, refuse(field, "container %s has no port %q", c.Name, p.StrVal).but("its ports are %s", known(names))
		}
	}
	if number < 1 || number > 65535 {
		return 0, refuse(field, "%s is no port", p.String()).but("want 1 to 65535")
	}
	return number, nil
}
