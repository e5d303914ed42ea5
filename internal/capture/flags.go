package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/contract"
)

// A Flag is one setting of an Intent, on the command line and in the environment.
// It is a flag.Value, and a pflag.Value.
type Flag struct {
	Name  string   // long, without dashes
	Short string   // one letter, or none
	Env   []string // variables that set it; the first takes precedence, the command line over all
	Usage string

	def   string
	value string
	bool  bool
	set   func(string) error
}

// String is the value as it was given, or the default.
func (f *Flag) String() string {
	if f.value == "" {
		return f.def
	}
	return f.value
}

// Type is the word for the value in a usage text.
func (f *Flag) Type() string {
	if f.bool {
		return "bool"
	}
	return "string"
}

// IsBoolFlag reports whether the flag may stand without a value.
func (f *Flag) IsBoolFlag() bool { return f.bool }

// Set parses s into the intent. The error is a [ValueError].
func (f *Flag) Set(s string) error {
	if err := f.set(s); err != nil {
		return &ValueError{Flag: f.Name, Value: s, Err: err}
	}
	f.value = s
	return nil
}

// ValueError is an invalid value of a flag.
type ValueError struct {
	Flag, Value string
	Err         error
}

func (e *ValueError) Error() string { return fmt.Sprintf("--%s=%q: %v", e.Flag, e.Value, e.Err) }

func (e *ValueError) Unwrap() error { return e.Err }

// Lookup turns the name of a user or group into its number.
type Lookup func(name string) (uint32, error)

// maxOwnerGroups is Istio's limit for a list of groups.
const maxOwnerGroups = 64

// Flags returns the settings of in, in the order of a usage text. users and groups
// resolve names; nil refuses them.
func Flags(in *Intent, users, groups Lookup) []*Flag {
	f := flags{in: in, users: users, groups: groups}
	f.ports()
	f.owners()
	f.inbound()
	f.outbound()
	f.interfaces()
	f.dnsAndMore()
	f.parking()
	return f.list
}

type flags struct {
	in            *Intent
	users, groups Lookup
	list          []*Flag
	dns, dnsAll   bool
}

// add appends a flag. Its variable is its name in upper case, as in Istio, unless
// env names others.
func (f *flags) add(name, short, def, usage string, set func(string) error, env ...string) *Flag {
	if len(env) == 0 {
		env = []string{strings.ToUpper(strings.ReplaceAll(name, "-", "_"))}
	}
	fl := &Flag{Name: name, Short: short, Env: env, Usage: usage, def: def, set: set}
	f.list = append(f.list, fl)
	return fl
}

func (f *flags) addBool(name, usage string, set func(bool), env ...string) {
	fl := f.add(name, "", "false", usage, func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("neither true nor false")
		}
		set(v)
		return nil
	}, env...)
	fl.bool = true
}

func (f *flags) port(to *uint16) func(string) error {
	return func(s string) (err error) {
		*to, err = ParsePort(s)
		return err
	}
}

func (f *flags) ports() {
	in := f.in
	f.add("envoy-port", "p", fmt.Sprint(contract.OutboundPort), "port of the proxy for outbound connections", func(s string) error {
		in.proxyPortsGiven = true
		return f.port(&in.OutboundPort)(s)
	})
	f.add("inbound-capture-port", "z", fmt.Sprint(contract.InboundPort), "port of the proxy for inbound connections", func(s string) error {
		in.proxyPortsGiven = true
		return f.port(&in.InboundPort)(s)
	})
	f.add("inbound-tunnel-port", "e", fmt.Sprint(contract.TunnelPort), "port on which the proxy ends tunnels; never captured", f.port(&in.TunnelPort))
}

func (f *flags) owners() {
	in := f.in
	f.add("proxy-uid", "u", fmt.Sprint(contract.ProxyUser), "users (names or numbers, comma separated) whose traffic is not captured: the proxy's",
		ids(&in.ProxyUIDs, f.users, "user"), "PROXY_UID", "ENVOY_USER")
	f.add("proxy-gid", "g", "as --proxy-uid", "groups whose traffic is not captured: the proxy's",
		ids(&in.ProxyGIDs, f.groups, "group"))
	f.add("outbound-owner-groups", "", "*", "capture outbound traffic of these groups alone; '*' is all", func(s string) error {
		g := Groups{All: s == "*"}
		if !g.All {
			if err := ids(&g.List, f.groups, "group")(s); err != nil {
				return err
			}
		}
		if len(g.List) > maxOwnerGroups {
			return fmt.Errorf("%d groups; at most %d", len(g.List), maxOwnerGroups)
		}
		in.OwnerGroups = g
		return nil
	}, "ISTIO_OUTBOUND_OWNER_GROUPS")
	f.add("outbound-owner-groups-exclude", "", "", "do not capture outbound traffic of these groups",
		ids(&in.ExcludeOwnerGroups, f.groups, "group"), "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE")
}

func (f *flags) inbound() {
	in := f.in
	f.add("istio-inbound-interception-mode", "m", "REDIRECT", "how inbound connections reach the proxy: REDIRECT, TPROXY, or NONE to capture nothing", func(s string) error {
		switch m := Mode(strings.ToUpper(s)); m {
		case RedirectMode, TProxyMode, NoneMode:
			in.Mode = m
		case "":
			in.Mode = RedirectMode
		default:
			return fmt.Errorf("not a mode; one of REDIRECT, TPROXY, NONE")
		}
		return nil
	})
	f.add("istio-inbound-ports", "b", "", "capture these inbound ports; '*' is all, empty is none", portList(&in.InboundPorts))
	f.add("istio-local-exclude-ports", "d", "", "do not capture these inbound ports; 15020, 15021 and 15090 never are", portList(&in.ExcludeInboundPorts))
	f.add("istio-inbound-tproxy-mark", "t", "1337", "mark of packets that are the proxy's (TPROXY)", func(s string) error {
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("not a mark; 1 to 4294967295")
		}
		if slices.Contains([]uint64{selfCallMark, tproxiedMark, refuseMark, ProofOut, ProofIn}, n) {
			return fmt.Errorf("%#x is reserved; use another mark", n)
		}
		in.TProxyMark = uint32(n)
		return nil
	})
	f.add("istio-inbound-tproxy-route-table", "r", "133", "routing table that makes those packets local (TPROXY)", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil || n == 0 || n >= 253 && n <= 255 {
			return fmt.Errorf("not a table; a number from 1, except 253 to 255, which are the system's")
		}
		in.TProxyTable = int(n)
		return nil
	})
}

func (f *flags) outbound() {
	in := f.in
	f.add("istio-service-cidr", "i", "", "capture outbound connections to these address ranges; '*' is all, empty is none", func(s string) error {
		if strings.TrimSpace(s) == "*" {
			in.OutboundRanges = Ranges{All: true}
			return nil
		}
		list, err := parsePrefixes(s)
		in.OutboundRanges = Ranges{List: list}
		return err
	})
	f.add("istio-service-exclude-cidr", "x", "", "do not capture outbound connections to these address ranges", func(s string) error {
		if strings.TrimSpace(s) == "*" {
			return fmt.Errorf("every address cannot be excluded; to capture nothing outbound, leave -i empty")
		}
		list, err := parsePrefixes(s)
		in.ExcludeOutboundRanges = list
		return err
	})
	f.add("istio-outbound-ports", "q", "", "capture outbound connections to these ports, whatever the address", portList(&in.OutboundPorts))
	f.add("istio-local-outbound-ports-exclude", "o", "", "do not capture outbound connections to these ports", func(s string) error {
		var p Ports
		if err := portList(&p)(s); err != nil {
			return err
		}
		if p.All {
			return fmt.Errorf("every port cannot be excluded; to capture nothing outbound, leave -i and -q empty")
		}
		in.ExcludeOutboundPorts = p.List
		return nil
	})
	f.add("outbound-ipv4-loopback-cidr", "", "127.0.0.1/32", "IPv4 loopback range that outbound capture leaves alone", func(s string) error {
		p, err := parsePrefix(s)
		if err != nil {
			return err
		}
		if !p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8 {
			return fmt.Errorf("not within 127.0.0.0/8")
		}
		in.Loopback = p
		return nil
	}, "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR")
}

func (f *flags) interfaces() {
	f.add("istio-exclude-interfaces", "c", "", "capture nothing on these interfaces", interfaceList(&f.in.ExcludeInterfaces))
	f.add("kube-virt-interfaces", "k", "", "inbound traffic on these interfaces is a guest's outbound traffic", interfaceList(&f.in.VirtualInterfaces))
}

func (f *flags) dnsAndMore() {
	in := f.in
	mode := func() {
		switch {
		case f.dns && f.dnsAll:
			in.DNS = DNSAll
		case f.dns:
			in.DNS = DNSServers
		default:
			in.DNS = DNSOff
		}
	}
	f.addBool("redirect-dns", "redirect DNS queries to the servers of resolv.conf to the agent's resolver",
		func(v bool) { f.dns = v; mode() }, "REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE")
	f.addBool("capture-all-dns", "with --redirect-dns: DNS queries to any server", func(v bool) { f.dnsAll = v; mode() })
	f.addBool("drop-invalid", "drop inbound packets that connection tracking finds invalid", func(v bool) { in.DropInvalid = v }, "DROP_INVALID", "INVALID_DROP")
	f.addBool("dual-stack", "capture IPv4 and IPv6 whatever addresses the pod has", func(v bool) {
		if v {
			in.Families = DualStack
		}
	}, "DUAL_STACK", "ISTIO_DUAL_STACK")
	f.add("families", "", "auto", "what to capture: ipv4, ipv6, dual, or auto: IPv4, and IPv6 if the pod has such an address", func(s string) error {
		families, ok := map[string]Families{"auto": 0, "ipv4": IPv4, "ipv6": IPv6, "dual": DualStack}[s]
		if !ok {
			return fmt.Errorf("one of auto, ipv4, ipv6, dual")
		}
		in.Families = families
		return nil
	}, "OUTRIDER_FAMILIES")
}

func (f *flags) parking() {
	in := f.in
	f.add("park", "", "on", "early connections wait until the proxy listens: off, on, or require to fail where the kernel does not support it", func(s string) error {
		switch p := ParkMode(s); p {
		case ParkOff, ParkOn, ParkRequire:
			in.Park = p
			return nil
		}
		return fmt.Errorf("one of off, on, require")
	}, "OUTRIDER_PARK")
	f.add("park-ports", "", "", "local ports parked besides the proxy's; '*' is all but the status ports", func(s string) error {
		var p Ports
		if err := portList(&p)(s); err != nil {
			return err
		}
		for _, port := range p.List {
			if slices.Contains(statusPorts, port) {
				return fmt.Errorf("status port %d is never parked: a probe must be refused at once", port)
			}
		}
		in.ParkPorts = p
		return nil
	}, "OUTRIDER_PARK_PORTS")
	f.add("park-limit", "", "1m", "how long connections wait for an absent listener before they are refused; 0 is as long as the callers do", func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 || d > 0 && d < time.Second || d > time.Hour || d%time.Second != 0 {
			return fmt.Errorf("not a time limit; whole seconds from 1s to 1h, or 0")
		}
		in.ParkLimit = d
		return nil
	}, "OUTRIDER_PARK_LIMIT")
	f.addBool("park-only", "capture nothing: park connections to the proxy of another mesh (ports 15001, 15006, 4140, 4143, or -p and -z)",
		func(v bool) { in.ParkOnly = v }, "OUTRIDER_PARK_ONLY")
}

// Check reports settings that conflict.
func (in Intent) Check() error {
	for _, p := range []struct {
		flag string
		port uint16
	}{{"envoy-port", in.OutboundPort}, {"inbound-capture-port", in.InboundPort}} {
		if slices.Contains(statusPorts, p.port) || p.port == contract.DNSPort {
			return &ValueError{p.flag, fmt.Sprint(p.port), fmt.Errorf("the port is reserved; the proxy must listen on another")}
		}
	}
	if in.ParkOnly && in.Park == ParkOff {
		return &ValueError{"park-only", "true", fmt.Errorf("it conflicts with --park=off; leave one of them out")}
	}
	return nil
}

// fields splits a comma separated list and leaves out empty entries, as Istio does.
func fields(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// ParsePort reads a port number, 1 to 65535.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port; 1 to 65535", s)
	}
	return uint16(n), nil
}

func portList(to *Ports) func(string) error {
	return func(s string) error {
		var p Ports
		for _, part := range fields(s) {
			if part == "*" {
				p.All = true
				continue
			}
			n, err := ParsePort(part)
			if err != nil {
				return err
			}
			if !slices.Contains(p.List, n) {
				p.List = append(p.List, n)
			}
		}
		if p.All && len(p.List) > 0 {
			return fmt.Errorf("'*' is every port; list no others with it")
		}
		*to = p
		return nil
	}
}

func parsePrefixes(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, part := range fields(s) {
		p, err := parsePrefix(part)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// parsePrefix reads an address range; a single address is a range of one. Host bits are cleared.
func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not an address range; write it like 10.0.0.0/8 or fd00::/8", s)
	}
	return p.Masked(), nil
}

// ids reads users or groups, by number or by name.
func ids(to *[]uint32, lookup Lookup, kind string) func(string) error {
	return func(s string) error {
		var out []uint32
		for _, part := range fields(s) {
			n, err := strconv.ParseUint(part, 10, 32)
			id := uint32(n)
			if err != nil || id == ^uint32(0) { // the kernel's "no id"
				if lookup == nil {
					return fmt.Errorf("%q is not the number of a %s", part, kind)
				}
				if id, err = lookup(part); err != nil {
					return fmt.Errorf("there is no %s %q here; use its number, or a name from this machine", kind, part)
				}
			}
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		*to = out
		return nil
	}
}

// interfaceList reads names of network interfaces. The kernel accepts 1 to 15 bytes,
// without white space and slash (dev_valid_name); to iptables a trailing + is a
// wildcard, so that the rule would match other interfaces.
func interfaceList(to *[]string) func(string) error {
	return func(s string) error {
		var out []string
		for _, part := range fields(s) {
			bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/:"\+*`, r) }
			if len(part) > 15 || part == "." || part == ".." || strings.ContainsFunc(part, bad) {
				return fmt.Errorf("%q is not the name of a network interface", part)
			}
			if !slices.Contains(out, part) {
				out = append(out, part)
			}
		}
		*to = out
		return nil
	}
}
