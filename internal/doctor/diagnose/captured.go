package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/evidence"
)

// An answer says whether something is so.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// A capturing is which connections of a pod go to its proxy, as far as the pod says.
type capturing struct {
	none   string // why none does; empty: some do
	intent capture.Intent
	rules  capture.Ruleset
	users  map[string]int64 // by container, where it is known
	vague  string           // a setting that was not understood
	parks  bool             // what comes before the proxy listens waits
}

// readCapture reads the settings of the container that writes the rules, or those of the
// annotations where a node's plugin does.
func readCapture(pod *corev1.Pod, proxy *evidence.Container) capturing {
	switch {
	case proxy == nil:
		return capturing{none: "the pod has no proxy"}
	case pod.Spec.HostNetwork:
		return capturing{none: "the pod has the node's network (hostNetwork), in which no mesh captures"}
	case !podspec.OfMesh(proxy.Name):
		return handMade(pod, proxy)
	}
	c := newCapturing(pod)
	in := &c.intent
	set := setter(in)
	mesh := podspec.Meshes[slices.IndexFunc(podspec.Meshes, func(m podspec.Mesh) bool { return m.Proxy == proxy.Name })]
	in.ProxyUIDs, in.ProxyGIDs = []uint32{uint32(mesh.User)}, []uint32{uint32(mesh.User)}
	ours := proxy.Name == podspec.OurProxy
	if !ours {
		in.Park = capture.ParkOff // it refuses
	}
	written := slices.IndexFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return slices.Contains(mesh.Init, i.Name) })
	work, byNode := podspec.NodeWork(pod)
	if byNode = byNode && ours; byNode && len(work.Capture) == 0 {
		return capturing{none: "the pod asks its node for no capture"}
	}
	if written < 0 && !byNode || !ours && proxy.Name != "istio-proxy" { // without settings all is captured; Istio's program takes nothing then
		_, _ = set("istio-service-cidr", "*"), set("istio-inbound-ports", "*")
	}
	if byNode {
		c.vague = fromArguments(work.Capture, set)
	} else if written >= 0 {
		spec := pod.Spec.InitContainers[written]
		if words := expanded(spec); ownRules(words) {
			c.vague = "rules of its own, by " + spec.Name
			_ = set("istio-service-cidr", "*")
		} else {
			c.vague = fromArguments(words, set)
		}
	} else {
		for _, a := range captureAnnotations {
			if v, has := pod.Annotations[a.key]; has {
				if err := set(a.flag, v); err != nil {
					c.vague = fmt.Sprintf("annotation %s=%q", a.key, v)
				}
			}
		}
	}
	if ours && (byNode || written >= 0) {
		c.parks = in.Park != capture.ParkOff
	}
	c.rules, _ = capture.Build(c.intent, capture.NFTables)
	return c
}

func newCapturing(pod *corev1.Pod) capturing {
	c := capturing{intent: capture.Defaults(), users: users(pod)}
	c.intent.Families = capture.DualStack
	return c
}

// handMade is the capture of a proxy that no mesh has added: an init container with NET_ADMIN writes
// rules of its own, which are not understood here.
func handMade(pod *corev1.Pod, proxy *evidence.Container) capturing {
	for _, i := range pod.Spec.InitContainers {
		sc := i.SecurityContext
		if sc == nil || sc.Capabilities == nil || !slices.Contains(sc.Capabilities.Add, "NET_ADMIN") {
			continue
		}
		if text := strings.ToLower(strings.Join(slices.Concat(i.Command, i.Args), " ")); strings.Contains(text, "redirect") || strings.Contains(text, "tproxy") {
			c := newCapturing(pod)
			c.vague = "rules of its own, by " + i.Name
			c.intent.Park = capture.ParkOff
			_ = setter(&c.intent)("istio-service-cidr", "*")
			if user, known := c.users[proxy.Name]; known {
				c.intent.ProxyUIDs, c.intent.ProxyGIDs = []uint32{uint32(user)}, nil
			}
			c.rules, _ = capture.Build(c.intent, capture.NFTables)
			return c
		}
	}
	return capturing{none: fmt.Sprintf("%s captures nothing: applications call it by its own port", proxy.Name)}
}

// ownRules reports whether a command is a script that writes rules, which no flags describe.
func ownRules(command []string) bool {
	text := strings.ToLower(strings.Join(command, " "))
	return slices.ContainsFunc([]string{"-j redirect", "-j tproxy", "redirect to :", "tproxy to :"}, func(rule string) bool { return strings.Contains(text, rule) })
}

// leavesOut reports whether the settings leave some destinations out.
func (c capturing) leavesOut() bool {
	return len(c.intent.ExcludeOutboundPorts) > 0 || len(c.intent.ExcludeOutboundRanges) > 0 || !c.intent.OutboundRanges.All
}

// takesAll reports whether the settings are understood, and leave no destination out.
func (c capturing) takesAll() bool { return c.none == "" && c.vague == "" && !c.leavesOut() }

// captureAnnotations are the settings of capture that a pod has where a plugin of the node writes
// the rules. Sources: istio.io/docs/reference/config/annotations; linkerd.io/2/reference/proxy-configuration;
// kuma.io/docs/latest/reference/kubernetes-annotations.
var captureAnnotations = []struct{ key, flag string }{
	{"traffic.sidecar.istio.io/includeOutboundIPRanges", "istio-service-cidr"},
	{"traffic.sidecar.istio.io/excludeOutboundIPRanges", "istio-service-exclude-cidr"},
	{"traffic.sidecar.istio.io/includeOutboundPorts", "istio-outbound-ports"},
	{"traffic.sidecar.istio.io/excludeOutboundPorts", "istio-local-outbound-ports-exclude"},
	{"traffic.sidecar.istio.io/excludeInboundPorts", "istio-local-exclude-ports"},
	{"config.linkerd.io/skip-outbound-ports", "istio-local-outbound-ports-exclude"},
	{"config.linkerd.io/skip-inbound-ports", "istio-local-exclude-ports"},
	{"traffic.kuma.io/exclude-outbound-ports", "istio-local-outbound-ports-exclude"},
	{"traffic.kuma.io/exclude-inbound-ports", "istio-local-exclude-ports"},
}

// foreignFlags are the names of other meshes for settings of Istio's.
var foreignFlags = map[string]string{
	"outbound-ports-to-ignore": "istio-local-outbound-ports-exclude", "inbound-ports-to-ignore": "istio-local-exclude-ports",
	"outgoing-proxy-port": "envoy-port", "incoming-proxy-port": "inbound-capture-port", "proxy-uid": "proxy-uid",
	"exclude-outbound-ports": "istio-local-outbound-ports-exclude", "exclude-inbound-ports": "istio-local-exclude-ports",
	"redirect-outbound-port": "envoy-port", "redirect-inbound-port": "inbound-capture-port", "kuma-dp-uid": "proxy-uid",
}

// setter sets a flag by its long name or its letter.
func setter(in *capture.Intent) func(name, value string) error {
	number := func(s string) (uint32, error) {
		n, err := strconv.ParseUint(s, 10, 32)
		return uint32(n), err
	}
	flags := capture.Flags(in, number, number)
	return func(name, value string) error {
		name = cmp.Or(foreignFlags[name], name)
		for _, f := range flags {
			if f.Name == name || f.Short == name {
				return f.Set(value)
			}
		}
		return fmt.Errorf("no setting --%s", name)
	}
}

// harmless are flags of the programs that write rules that have no part in what is captured.
var harmless = []string{"log_output_level", "log-level", "log-format", "run-validation", "skip-rule-apply", "timeout-close-wait-secs", "ipv6", "iptables-mode", "verbose", "kubernetes", "wait-for-proxy",
	"copy", "iptables-probe-port", "force-iptables-binary", "proof", "backend", "termination-log", "force-apply", "reconcile", "cleanup-only"}

// fromArguments reads the flags of a command line, and returns what it has that was not understood.
func fromArguments(words []string, set func(name, value string) error) (vague string) {
	first := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })
	for i := max(first, 0); i < len(words); i++ {
		name, value, has := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if !strings.HasPrefix(words[i], "-") {
			continue
		}
		if !has && i+1 < len(words) && (!strings.HasPrefix(words[i+1], "-") || words[i+1] == "-") {
			i++
			value, has = words[i], true
		}
		if !has {
			value = "true"
		}
		if slices.Contains(harmless, name) {
			continue
		}
		if err := set(name, value); err != nil {
			vague = fmt.Sprintf("%s %s", words[min(i, len(words)-1)], value)
		}
	}
	return vague
}

// expanded is the command of a container with its $(VARIABLE)s, as far as the pod has their values.
func expanded(c corev1.Container) []string {
	var pairs []string
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			pairs = append(pairs, "$("+e.Name+")", e.Value)
		}
	}
	words, values := slices.Concat(c.Command, c.Args), strings.NewReplacer(pairs...)
	for i, w := range words {
		words[i] = values.Replace(w)
	}
	return words
}

// users are those that containers run as, where the pod says it.
func users(pod *corev1.Pod) map[string]int64 {
	out := map[string]int64{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if s := pod.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
			out[c.Name] = *s.RunAsUser
		}
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			out[c.Name] = *s.RunAsUser
		}
	}
	return out
}

// A destination is what an application called, as far as its log says. The zero value is not known.
type destination struct {
	host string
	port uint16
}

func (d destination) known() bool { return d.host != "" }

func (d destination) String() string {
	switch {
	case d.host == "":
		return "an address that the log does not name"
	case d.port == 0:
		return d.host
	}
	return fmt.Sprintf("%s:%d", d.host, d.port)
}

// loopback reports whether it is the pod itself.
func (d destination) loopback() bool {
	a, err := netip.ParseAddr(d.host)
	return strings.EqualFold(d.host, "localhost") || err == nil && (a.IsLoopback() || a.IsUnspecified())
}

// someAddress stands for one that is known by its name only.
var someAddress = netip.MustParseAddr("198.51.100.1")

// takes reports whether a connection of a container goes to the proxy, and why if it does not for
// certain.
func (c capturing) takes(container string, d destination) (answer, string) {
	if c.none != "" {
		return no, c.none
	}
	addr, err := netip.ParseAddr(d.host)
	named := err != nil
	switch {
	case d.loopback():
		return no, "the pod itself is called, and no mesh captures that"
	case named:
		addr = someAddress
	}
	user, known := c.users[container]
	if !known {
		user = 65535 // any but the proxy's
	}
	port, source := cmp.Or(d.port, 65535), netip.MustParseAddr("198.51.100.9")
	if addr.Is6() && !addr.Is4In6() {
		source = netip.MustParseAddr("2001:db8::9")
	}
	trace := c.rules.Trace(capture.Conn{
		Proto: capture.TCP, Src: netip.AddrPortFrom(source, 40000), Dst: netip.AddrPortFrom(addr, port),
		Out: "eth0", UID: uint32(user), GID: uint32(user),
	}, capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: c.intent.OutboundPort, Transparent: true}}})
	taken := trace.Fate == capture.Redirected || trace.Fate == capture.Taken
	ranges := len(c.intent.ExcludeOutboundRanges) > 0 || !c.intent.OutboundRanges.All
	switch {
	case !taken && !known && len(trace.Steps) > 0 && named && ranges:
		return perhaps, fmt.Sprintf("which address %s has is not known, and the capture leaves some out", d)
	case !taken:
		return no, c.leaves(container, d, user, known)
	case c.vague != "":
		return perhaps, fmt.Sprintf("a setting of the capture is not known here: %s", c.vague)
	case named && ranges:
		return perhaps, fmt.Sprintf("which address %s has is not known, and the capture leaves some out", d)
	case d.port == 0 && len(c.intent.ExcludeOutboundPorts) > 0:
		return perhaps, "the port is not known, and the capture leaves some out"
	case !d.known():
		return perhaps, "the log does not name what was called: a call of the pod itself is not captured"
	}
	return yes, ""
}

// leaves is why the capture leaves a connection out.
func (c capturing) leaves(container string, d destination, user int64, known bool) string {
	switch {
	case known && slices.Contains(c.intent.ProxyUIDs, uint32(user)):
		return fmt.Sprintf("%s runs as user %d, the proxy's, whose connections are not captured", container, user)
	case slices.Contains(c.intent.ExcludeOutboundPorts, d.port):
		return fmt.Sprintf("port %d is left out of the capture", d.port)
	}
	return fmt.Sprintf("%s is left out of the capture", d)
}
