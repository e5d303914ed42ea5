// Package capturescope predicts which connections of a pod are redirected to its proxy. It reads the capture
// settings from the pod's object (arguments of the init container, settings for the node, annotations), builds the
// rule set that they request, and traces a connection through it. If it does not understand a setting, it answers
// Perhaps.
package capturescope

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// A Scope is the set of connections that the pod's settings send to its proxy.
type Scope struct {
	None   string // reason why no connection is captured; empty: some are captured
	intent capture.Intent
	rules  capture.Ruleset
	users  map[string]int64 // user ID by container, where it is known
	Vague  string           // a setting that was not understood
	Parks  bool             // connections wait until the proxy listens
	// Presumed: nothing shows that there is a capture, only that there may be one in what was left out.
	Presumed bool
	Own      bool   // the proxy is of no mesh that is known here: applications may call it by its own port, too
	Resolves string // the setting by which the proxy answers the DNS queries of the pod; empty: it does not
}

// Of returns the scope of a pod. It reads the arguments of the init container that writes the rules, or the
// annotations if a plugin of the node writes them.
func Of(pod *corev1.Pod, proxy string) Scope { return OfPart(pod, proxy, evidence.Omitted{}) }

// OfPart returns the scope of a pod of whose object something is not in the evidence. What is not known makes the scope
// vague, not empty.
func OfPart(pod *corev1.Pod, proxy string, omitted evidence.Omitted) Scope {
	mesh, known := knownproxy.MeshOf(proxy)
	switch {
	case proxy == "" && Ambient(pod):
		return Scope{None: "the pod is in Istio's ambient mode: what ztunnel of its node did is not in the evidence"}
	case proxy == "":
		return Scope{None: "the pod has no proxy"}
	case pod.Spec.HostNetwork:
		return Scope{None: "the pod has the node's network (hostNetwork), in which no mesh captures"}
	case proxy == "consul-dataplane":
		return consul(pod, omitted)
	case !known:
		return handMade(pod, proxy, omitted)
	}
	c := ofMesh(pod, proxy, mesh)
	c.Resolves = resolves(pod, proxy, c.intent)
	if c.None == "" && c.Vague == "" {
		written := slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return slices.Contains(mesh.Init, i.Name) })
		switch {
		case omitted.Spec && !written:
			c.Vague = "the pod's spec is not in the evidence"
		case omitted.Meta && !written:
			c.Vague = "the pod's annotations are not in the evidence"
		}
	}
	return c
}

// ofMesh returns the scope of a pod whose proxy a mesh has added.
func ofMesh(pod *corev1.Pod, proxy string, mesh knownproxy.Mesh) Scope {
	c := newScope(pod)
	in := &c.intent
	set := setter(in)
	in.ProxyUIDs, in.ProxyGIDs = []uint32{uint32(mesh.User)}, []uint32{uint32(mesh.User)}
	ours := proxy == podspec.OurProxy
	if !ours {
		in.Park = capture.ParkOff // early connections are refused instead
	}
	written := slices.IndexFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return slices.Contains(mesh.Init, i.Name) })
	work, byNode := podspec.NodeWork(pod)
	if byNode = byNode && ours; byNode && len(work.Capture) == 0 {
		return Scope{None: "the pod asks its node for no capture"}
	}
	if written < 0 && !byNode || !ours && proxy != "istio-proxy" { // default: all for node plugins and for meshes other than Istio, nothing for Istio's program
		_, _ = set("istio-service-cidr", "*"), set("istio-inbound-ports", "*")
	}
	if byNode {
		c.Vague = fromArguments(work.Capture, set)
	} else if written >= 0 {
		spec := pod.Spec.InitContainers[written]
		words, complete := expanded(spec), true
		if shown := slices.DeleteFunc(slices.Clone(words), evidence.LeftOut); len(shown) == 0 || len(shown) < len(words) {
			words, complete = shown, false
			_ = set("istio-service-cidr", "*") // unless what is left says something else
		}
		switch {
		case ownRules(words):
			c.Vague = "rules of its own, by " + spec.Name
			_ = set("istio-service-cidr", "*")
		case !complete:
			c.Vague = cmp.Or(fromArguments(words, set), "arguments of "+spec.Name+" that are not in the evidence")
		default:
			c.Vague = fromArguments(words, set)
		}
	} else {
		for _, a := range captureAnnotations {
			if v, has := pod.Annotations[a.key]; has {
				if err := set(a.flag, v); err != nil {
					c.Vague = fmt.Sprintf("annotation %s=%q", a.key, v)
				}
			}
		}
	}
	if ours && (byNode || written >= 0) {
		c.Parks = in.Park != capture.ParkOff
	}
	c.rules, _ = capture.Build(c.intent, capture.NFTables)
	return c
}

func newScope(pod *corev1.Pod) Scope {
	c := Scope{intent: capture.Defaults(), users: users(pod)}
	c.intent.Families = capture.DualStack
	return c
}

// handMade returns the scope of a proxy of which no mesh is known here. Its capture rules are written by an init
// container whose settings this package does not understand, but for those of AWS App Mesh.
func handMade(pod *corev1.Pod, proxy string, omitted evidence.Omitted) Scope {
	vague := func(why string) Scope {
		c := newScope(pod)
		c.Vague, c.Own = why, true
		c.intent.Park = capture.ParkOff
		_ = setter(&c.intent)("istio-service-cidr", "*")
		if user, known := c.users[proxy]; known {
			c.intent.ProxyUIDs, c.intent.ProxyGIDs = []uint32{uint32(user)}, nil
		}
		return c
	}
	for _, i := range pod.Spec.InitContainers {
		appMesh := slices.ContainsFunc(i.Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "APPMESH_") })
		if !mayCapture(pod, i, omitted) && !appMesh {
			continue
		}
		c := vague("rules of its own, by " + i.Name)
		set := setter(&c.intent)
		for _, e := range i.Env {
			flag, is := appMeshSettings[e.Name]
			if is && e.Value != "" && set(flag, e.Value) != nil {
				appMesh = false
				break
			}
		}
		if appMesh {
			c.Vague = ""
		}
		c.rules, _ = capture.Build(c.intent, capture.NFTables)
		return c
	}
	silent := slices.IndexFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return isSilent(pod, i) })
	if (omitted.Spec || silent >= 0) && !byAddress(proxy) {
		c := vague("the pod's spec is not in the evidence")
		if c.Presumed = true; silent >= 0 {
			c.Vague = "the evidence does not show what " + pod.Spec.InitContainers[silent].Name + " does"
		}
		c.rules, _ = capture.Build(c.intent, capture.NFTables)
		return c
	}
	return Scope{None: fmt.Sprintf("%s captures nothing: applications call it by its own port", proxy)}
}

// consul returns the scope of a pod of Consul's mesh: all that the annotations do not leave out, if the proxy is
// transparent. Source: developer.hashicorp.com/consul/docs/k8s/annotations-and-labels.
func consul(pod *corev1.Pod, omitted evidence.Omitted) Scope {
	const prefix = "consul.hashicorp.com/transparent-proxy"
	transparent := pod.Annotations[prefix+"-status"] == "enabled" || pod.Annotations[prefix] == "true"
	for _, i := range pod.Spec.InitContainers {
		transparent = transparent || i.Name == "consul-connect-inject-init" && strings.Contains(strings.Join(slices.Concat(i.Command, i.Args), " "), "-redirect-traffic-config")
	}
	if !transparent && !omitted.Meta {
		return Scope{None: "Consul's proxy captures nothing here: applications call it by the ports of its upstreams"}
	}
	c := newScope(pod)
	set := setter(&c.intent)
	c.intent.Park, c.intent.ProxyUIDs, c.intent.ProxyGIDs = capture.ParkOff, []uint32{consulUser}, nil
	_ = set("istio-service-cidr", "*")
	if !transparent {
		c.Vague = "the pod's annotations are not in the evidence"
	}
	for annotation, flag := range map[string]string{"-exclude-outbound-ports": "istio-local-outbound-ports-exclude", "-exclude-outbound-cidrs": "istio-service-exclude-cidr"} { // any order: different settings
		if v := pod.Annotations[prefix+annotation]; v != "" && set(flag, v) != nil {
			c.Vague = fmt.Sprintf("annotation %s=%q", prefix+annotation, v)
		}
	}
	c.rules, _ = capture.Build(c.intent, capture.NFTables)
	c.Resolves = resolves(pod, "consul-dataplane", c.intent)
	return c
}

// Ambient reports whether a pod is in Istio's ambient mode: ztunnel of its node gets its connections. Source: istio.io
// (ambient mode, labels and annotations).
func Ambient(pod *corev1.Pod) bool {
	return pod.Annotations["ambient.istio.io/redirection"] == "enabled" || pod.Labels["istio.io/dataplane-mode"] == "ambient"
}

// resolves returns the setting by which the DNS queries of a pod go to its proxy, empty if they do not: flags of the rules,
// settings of Istio's and Kuma's proxy, or a name server that is the pod itself. Sources: istio.io (DNS proxying), kuma.io
// (data plane DNS, annotations), developer.hashicorp.com (Consul DNS with transparent proxies).
func resolves(pod *corev1.Pod, proxy string, in capture.Intent) string {
	for _, c := range pod.Spec.InitContainers {
		for _, a := range slices.Concat(c.Command, c.Args) {
			if c.Name == "kuma-init" && (strings.HasPrefix(a, "--redirect-dns") || strings.HasPrefix(a, "--redirect-all-dns-traffic")) {
				return fmt.Sprintf("%s has %s", c.Name, a)
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, e := range c.Env {
			if c.Name == proxy && (e.Name == "ISTIO_META_DNS_CAPTURE" || e.Name == "KUMA_DNS_ENABLED") && e.Value == "true" {
				return fmt.Sprintf("%s has %s=%s", c.Name, e.Name, e.Value)
			}
		}
	}
	for _, name := range []string{"kuma.io/builtin-dns", "kuma.io/builtindns"} {
		if v := pod.Annotations[name]; v == "enabled" || v == "true" {
			return fmt.Sprintf("the annotation %s is %s", name, v)
		}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		for _, n := range c.Nameservers {
			if strings.HasPrefix(n, "127.") || n == "::1" {
				return "the pod's name server is " + n
			}
		}
	}
	if in.DNS != capture.DNSOff {
		return "the capture's rules send DNS queries to " + proxy
	}
	return ""
}

// consulUser is the user ID of consul-dataplane.
const consulUser = 5995

// appMeshSettings maps variables of App Mesh's init container to flags. Source: docs.aws.amazon.com, App Mesh, proxy
// configuration.
var appMeshSettings = map[string]string{
	"APPMESH_EGRESS_IGNORED_PORTS": "istio-local-outbound-ports-exclude", "APPMESH_EGRESS_IGNORED_IP": "istio-service-exclude-cidr",
	"APPMESH_ENVOY_EGRESS_PORT": "envoy-port", "APPMESH_ENVOY_INGRESS_PORT": "inbound-capture-port", "APPMESH_IGNORE_UID": "proxy-uid",
}

// byAddress reports whether applications always call a proxy by its own address.
func byAddress(proxy string) bool { return proxy == "daprd" || strings.HasPrefix(proxy, "cloud") }

// mayCapture reports whether an init container may write rules: it may change the pod's network, it is one of a mesh or,
// if the evidence does not show what it may do, its command writes rules.
func mayCapture(pod *corev1.Pod, i corev1.Container, omitted evidence.Omitted) bool {
	if sc := i.SecurityContext; sc != nil {
		admin := sc.Capabilities != nil && slices.ContainsFunc(sc.Capabilities.Add, func(c corev1.Capability) bool {
			return slices.Contains([]string{"NET_ADMIN", "ALL"}, strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_"))
		})
		if admin || sc.Privileged != nil && *sc.Privileged {
			return true
		}
	}
	if _, osm := pod.Labels["osm-proxy-uuid"]; osm || writers.MatchString(i.Name) || writers.MatchString(podspec.ImageName(i.Image)) || writers.MatchString(i.Image) {
		return true
	}
	hidden := omitted.Hooks || i.SecurityContext == nil
	text := strings.ToLower(strings.Join(slices.Concat(i.Command, i.Args), " "))
	return hidden && slices.ContainsFunc([]string{"redirect", "tproxy", "iptables", "nft "}, func(word string) bool { return strings.Contains(text, word) })
}

// isSilent reports whether the evidence shows neither what an init container runs nor what it may do, and its image is not
// one of the pod's applications.
func isSilent(pod *corev1.Pod, i corev1.Container) bool {
	shown := len(i.Command)+len(i.Args)+len(i.Env) > 0 || i.SecurityContext != nil || i.RestartPolicy != nil
	return !shown && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return podspec.ImageName(c.Image) == podspec.ImageName(i.Image) })
}

// writers matches names and images of init containers that set up the capture of a mesh whose settings this package does
// not read: Open Service Mesh and its forks, NGINX, and containers named after what they do. Sources:
// release-v1-2.docs.openservicemesh.io (osm-init), docs.nginx.com/nginx-service-mesh.
var writers = regexp.MustCompile(`(?i)(?:^|/)(?:osm|fsm|nginx-mesh|mesh|proxy|envoy|sidecar)[-_]?init$|openservicemesh/init|(?:^|[-/_])(?:iptables|redirect|tproxy)(?:$|[-_])`)

// OnlyChecks reports whether an init container of a mesh only checks the rules that a plugin of the node should have
// written. Sources: istio tools/istio-iptables (--skip-rule-apply), linkerd2 charts/partials (network-validator).
func OnlyChecks(i *corev1.Container) bool {
	if i == nil {
		return false
	}
	for _, w := range expanded(*i) {
		if name, value, _ := strings.Cut(strings.TrimLeft(w, "-"), "="); name == "skip-rule-apply" {
			return value != "false"
		}
	}
	return i.Name == "istio-validation" || i.Name == "linkerd-network-validator"
}

// ownRules reports whether a command is a script that writes rules itself, so that it has no flags that this package
// could read.
func ownRules(command []string) bool {
	text := strings.ToLower(strings.Join(command, " "))
	return slices.ContainsFunc([]string{"-j redirect", "-j tproxy", "redirect to :", "tproxy to :"}, func(rule string) bool { return strings.Contains(text, rule) })
}

// LeavesOut reports whether the settings exclude some destinations.
func (c Scope) LeavesOut() bool {
	return len(c.intent.ExcludeOutboundPorts) > 0 || len(c.intent.ExcludeOutboundRanges) > 0 || !c.intent.OutboundRanges.All
}

// TakesAll reports whether all settings were understood and no destination is excluded.
func (c Scope) TakesAll() bool { return c.None == "" && c.Vague == "" && !c.LeavesOut() }

// captureAnnotations maps annotations to flags, for pods whose rules are written by a plugin of the node. Sources:
// istio.io/docs/reference/config/annotations; linkerd.io/2/reference/proxy-configuration;
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

// foreignFlags maps the flags of other meshes' init containers to Istio's flags.
var foreignFlags = map[string]string{
	"outbound-ports-to-ignore": "istio-local-outbound-ports-exclude", "inbound-ports-to-ignore": "istio-local-exclude-ports",
	"outgoing-proxy-port": "envoy-port", "incoming-proxy-port": "inbound-capture-port", "proxy-uid": "proxy-uid",
	"exclude-outbound-ports": "istio-local-outbound-ports-exclude", "exclude-inbound-ports": "istio-local-exclude-ports",
	"redirect-outbound-port": "envoy-port", "redirect-inbound-port": "inbound-capture-port", "kuma-dp-uid": "proxy-uid", "kuma-dp-user": "proxy-uid",
}

// setter returns a function that sets a flag by its long name or its letter.
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

// harmless lists flags that do not change what is captured. They are flags of programs that write capture rules.
var harmless = []string{"log_output_level", "log-level", "log-format", "run-validation", "skip-rule-apply", "timeout-close-wait-secs", "ipv6", "iptables-mode", "verbose", "kubernetes", "wait-for-proxy",
	"copy", "iptables-probe-port", "force-iptables-binary", "proof", "backend", "termination-log", "force-apply", "reconcile", "cleanup-only",
	"ip-family-mode", "redirect-inbound", "skip-dns-conntrack-zone-split", "skip-resolv-conf", "wait", "wait-interval", "max-retries", "sleep-between-retries", "iptables-logs", "iptables-executables", "drop-invalid-packets",
	"comments-disabled", "use-wait-flag", "firewall-bin-path", "firewall-save-bin-path"}

// fromArguments calls the function set for each flag of a command line. It returns the last flag for which the call
// failed.
func fromArguments(words []string, set func(name, value string) error) (vague string) {
	first := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })
	for i := max(first, 0); i < len(words); i++ {
		name, value, has := strings.Cut(strings.TrimLeft(strings.TrimSpace(words[i]), "-"), "=")
		if !strings.HasPrefix(words[i], "-") {
			continue
		}
		flag, bare := strings.TrimSpace(words[i]), false
		if !has && i+1 < len(words) && (!strings.HasPrefix(words[i+1], "-") || words[i+1] == "-") {
			i++
			value, has = words[i], true
		}
		if !has {
			value, bare = "true", true
		}
		if slices.Contains(harmless, name) {
			continue
		}
		err := set(name, value)
		if bare && err != nil {
			value, err = "", set(name, "") // an empty value, which kubectl describe shows as an empty line
		}
		if err != nil {
			vague = strings.TrimSpace(flag + map[bool]string{false: " " + value}[bare || strings.Contains(flag, "=")])
		}
	}
	return vague
}

// expanded returns the command and arguments of a container, in which $(NAME) is replaced if the container's env
// contains a literal value for NAME.
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

// users returns the user ID of each container for which the pod sets one.
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

// someAddress is used for a destination of which only the name is known.
var someAddress = netip.MustParseAddr("198.51.100.1")

// Takes reports whether a connection of a container is redirected to the proxy. Unless the answer is Yes, it also
// returns the reason.
func (c Scope) Takes(container string, d doctor.Destination) (doctor.Answer, string) {
	if c.None != "" {
		return doctor.No, c.None
	}
	addr, err := netip.ParseAddr(d.Host)
	named := err != nil
	switch {
	case d.Loopback():
		return doctor.No, "the pod itself is called, and no mesh captures that"
	case d.Network == doctor.UDP && d.Port == 53:
		return doctor.Perhaps, "a mesh may capture DNS"
	case d.Network == doctor.UDP:
		return doctor.No, "UDP is called, and no mesh captures that"
	case named:
		addr = someAddress
	}
	user, known := c.users[container]
	if !known {
		user = 65535 // any user but the proxy's
	}
	port, source := cmp.Or(d.Port, 65535), netip.MustParseAddr("198.51.100.9")
	if addr.Is6() && !addr.Is4In6() {
		source = netip.MustParseAddr("2001:db8::9")
	}
	way := trace.Follow(c.rules, trace.Conn{
		Proto: capture.TCP, Src: netip.AddrPortFrom(source, 40000), Dst: netip.AddrPortFrom(addr, port),
		Out: "eth0", UID: uint32(user), GID: uint32(user),
	}, trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: c.intent.OutboundPort, Transparent: true}}})
	taken := way.Fate == trace.Redirected || way.Fate == trace.Taken
	ranges := len(c.intent.ExcludeOutboundRanges) > 0 || !c.intent.OutboundRanges.All
	switch {
	case !taken && !known && len(way.Steps) > 0 && named && ranges:
		return doctor.Perhaps, fmt.Sprintf("which address %s has is not known, and the capture leaves some out", d)
	case !taken:
		return doctor.No, c.leaves(container, d, user, known)
	case c.Vague != "":
		return doctor.Perhaps, fmt.Sprintf("a setting of the capture is not known here: %s", c.Vague)
	case named && ranges:
		return doctor.Perhaps, fmt.Sprintf("which address %s has is not known, and the capture leaves some out", d)
	case d.Port == 0 && len(c.intent.ExcludeOutboundPorts) > 0:
		return doctor.Perhaps, "the port is not known, and the capture leaves some out"
	case !d.Known():
		return doctor.Perhaps, "the log does not name what was called: a call of the pod itself is not captured"
	}
	return doctor.Yes, ""
}

// TakesIn reports whether a connection from outside to a port of the pod comes to the proxy first.
func (c Scope) TakesIn(port uint16) doctor.Answer {
	in := c.intent
	switch {
	case c.None != "", in.ExcludeInboundPorts.All, slices.Contains(in.ExcludeInboundPorts.List, port):
		return doctor.No
	case c.Vague != "" || c.Presumed:
		return doctor.Perhaps
	case in.InboundPorts.All || slices.Contains(in.InboundPorts.List, port):
		return doctor.Yes
	}
	return doctor.No
}

// leaves returns the reason why a connection is not captured.
func (c Scope) leaves(container string, d doctor.Destination, user int64, known bool) string {
	switch {
	case known && slices.Contains(c.intent.ProxyUIDs, uint32(user)):
		return fmt.Sprintf("%s runs as user %d, the proxy's, whose connections are not captured", container, user)
	case slices.Contains(c.intent.ExcludeOutboundPorts, d.Port):
		return fmt.Sprintf("port %d is left out of the capture", d.Port)
	}
	return fmt.Sprintf("%s is left out of the capture", d)
}
