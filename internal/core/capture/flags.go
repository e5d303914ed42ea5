package capture

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// A Flag is one setting of an Intent, on the command line and in the environment. It implements
// flag.Value and pflag.Value.
type Flag struct {
	Name  string   // long, without dashes
	Short string   // one letter, or none
	Env   []string // variables that set it; the first takes precedence, and the command line overrules all variables
	Usage string

	def, value string
	bool       bool
	set        func(string) error
}

// String returns the value as given, or the default.
func (f *Flag) String() string {
	if f.value == "" {
		return f.def
	}
	return f.value
}

// Type returns the word for the value in a usage text.
func (f *Flag) Type() string {
	if f.bool {
		return "bool"
	}
	return "string"
}

// IsBoolFlag reports whether the flag may be given without a value.
func (f *Flag) IsBoolFlag() bool { return f.bool }

// Set parses s into the intent. The error names the flag and the value.
func (f *Flag) Set(s string) error {
	if err := f.set(s); err != nil {
		return fmt.Errorf("--%s=%.200q: %w", f.Name, s, err)
	}
	f.value = s
	return nil
}

// Lookup resolves the name of a user or group to its number.
type Lookup func(name string) (uint32, error)

// Flags returns the settings of an intent, in the order of a usage text. The functions users and groups resolve
// names; if they are nil, names are refused.
func Flags(in *Intent, users, groups Lookup) []*Flag {
	user, group := id(users, "user"), id(groups, "group")
	var dns, allDNS bool
	setDNS := func(flag *bool) func(bool) {
		return func(v bool) {
			*flag = v
			switch {
			case dns && allDNS:
				in.DNS = DNSAll
			case dns:
				in.DNS = DNSServers
			default:
				in.DNS = DNSOff
			}
		}
	}
	flags := []*Flag{
		{Name: "envoy-port", Short: "p", def: fmt.Sprint(contract.OutboundPort), set: in.proxyPort(&in.OutboundPort),
			Usage: "port of the proxy for outbound connections"},
		{Name: "inbound-capture-port", Short: "z", def: fmt.Sprint(contract.InboundPort), set: in.proxyPort(&in.InboundPort),
			Usage: "port of the proxy for inbound connections"},
		{Name: "inbound-tunnel-port", Short: "e", def: fmt.Sprint(contract.TunnelPort), set: one(&in.TunnelPort, ParsePort),
			Usage: "port on which the proxy ends tunnels; never captured"},

		{Name: "proxy-uid", Short: "u", def: fmt.Sprint(contract.ProxyUser), set: one(&in.ProxyUIDs, list(maxIDs, user)), Env: []string{"PROXY_UID", "ENVOY_USER"},
			Usage: "users (names or numbers, comma separated) whose traffic is not captured: the proxy's"},
		{Name: "proxy-gid", Short: "g", def: "as --proxy-uid", set: one(&in.ProxyGIDs, list(maxIDs, group)),
			Usage: "groups whose traffic is not captured: the proxy's"},
		{Name: "outbound-owner-groups", def: "*", set: selection(&in.OwnerGroups, list(maxIDs, group)), Env: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"},
			Usage: "capture only outbound traffic of these groups; '*' is all"},
		{Name: "outbound-owner-groups-exclude", set: one(&in.ExcludeOwnerGroups, list(maxIDs, group)), Env: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			Usage: "do not capture outbound traffic of these groups"},

		{Name: "istio-inbound-interception-mode", Short: "m", def: "REDIRECT", set: one(&in.Mode, parseMode),
			Usage: "how inbound connections reach the proxy: REDIRECT, TPROXY, or NONE to capture nothing"},
		{Name: "istio-inbound-ports", Short: "b", set: selection(&in.InboundPorts, portList(nil)),
			Usage: "capture these inbound ports (8080,9000:9010); '*' is all, empty is none"},
		{Name: "istio-local-exclude-ports", Short: "d", set: selection(&in.ExcludeInboundPorts, portList(nil)),
			Usage: "do not capture these inbound ports; 15020, 15021 and 15090 are never captured"},
		{Name: "istio-inbound-tproxy-mark", Short: "t", def: "1337", set: one(&in.TProxyMark, parseMark),
			Usage: "mark of the proxy's packets (TPROXY)"},
		{Name: "istio-inbound-tproxy-route-table", Short: "r", def: "133", set: one(&in.TProxyTable, parseTable),
			Usage: "routing table that delivers marked packets locally (TPROXY)"},

		{Name: "istio-service-cidr", Short: "i", set: selection(&in.OutboundRanges, list(MaxRanges, parsePrefix)),
			Usage: "capture outbound connections to these address ranges; '*' is all, empty is none"},
		{Name: "istio-service-exclude-cidr", Short: "x", set: notAll("address", "-i", one(&in.ExcludeOutboundRanges, list(MaxRanges, parsePrefix))),
			Usage: "do not capture outbound connections to these address ranges"},
		{Name: "istio-outbound-ports", Short: "q", set: selection(&in.OutboundPorts, portList(nil)),
			Usage: "capture outbound connections to these ports, whatever the address"},
		{Name: "istio-local-outbound-ports-exclude", Short: "o", set: notAll("port", "-i and -q", one(&in.ExcludeOutboundPorts, portList(nil))),
			Usage: "do not capture outbound connections to these ports"},
		{Name: "outbound-ipv4-loopback-cidr", def: "127.0.0.1/32", set: one(&in.Loopback, parseLoopback), Env: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
			Usage: "IPv4 loopback range that outbound capture leaves alone"},

		{Name: "istio-exclude-interfaces", Short: "c", set: one(&in.ExcludeInterfaces, list(MaxInterfaces, interfacePattern)),
			Usage: "capture nothing on these interfaces; a name that ends with + is a prefix (eth+)"},
		{Name: "kube-virt-interfaces", Short: "k", set: one(&in.VirtualInterfaces, list(MaxInterfaces, interfacePattern)),
			Usage: "inbound traffic on these interfaces is a guest's outbound traffic"},

		{Name: "redirect-dns", bool: true, set: boolean(setDNS(&dns)), Env: []string{"REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"},
			Usage: "redirect DNS queries to the servers of resolv.conf to the agent's resolver"},
		{Name: "capture-all-dns", bool: true, set: boolean(setDNS(&allDNS)),
			Usage: "with --redirect-dns: DNS queries to any server"},
		{Name: "drop-invalid", bool: true, set: boolean(func(v bool) { in.DropInvalid = v }), Env: []string{"DROP_INVALID", "INVALID_DROP"},
			Usage: "drop inbound packets that connection tracking finds invalid"},
		{Name: "dual-stack", bool: true, set: boolean(in.dualStack), Env: []string{"DUAL_STACK", "ISTIO_DUAL_STACK"},
			Usage: "capture IPv4 and IPv6 whatever addresses the pod has"},
		{Name: "families", def: "auto", set: one(&in.Families, parseFamilies), Env: []string{"OUTRIDER_FAMILIES"},
			Usage: "what to capture: ipv4, ipv6, dual, or auto: IPv4, and IPv6 if the pod has such an address"},

		{Name: "park", def: "on", set: one(&in.Park, parsePark), Env: []string{"OUTRIDER_PARK"},
			Usage: "early connections wait until the proxy listens: off, on, or require to fail where the kernel does not support it"},
		{Name: "park-ports", set: selection(&in.ParkPorts, portList(statusPorts)), Env: []string{"OUTRIDER_PARK_PORTS"},
			Usage: "local ports to park in addition to the proxy's; '*' is all except the status ports"},
		{Name: "park-limit", def: "1m", set: one(&in.ParkLimit, parseLimit), Env: []string{"OUTRIDER_PARK_LIMIT"},
			Usage: "how long connections wait for an absent listener before they are refused; 0 means as long as the callers wait"},
		{Name: "park-only", bool: true, set: boolean(func(v bool) { in.ParkOnly = v }), Env: []string{"OUTRIDER_PARK_ONLY"},
			Usage: "capture nothing: park connections to the proxy of another mesh (ports 15001, 15006, 4140, 4143, or -p and -z)"},
	}
	for _, f := range flags {
		if f.Env == nil { // derived as in Istio
			f.Env = []string{strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
		}
		if f.bool {
			f.def = "false"
		}
	}
	return flags
}

// Check reports settings that conflict.
func (in Intent) Check() error {
	for _, p := range []struct {
		flag string
		port uint16
	}{{"envoy-port", in.OutboundPort}, {"inbound-capture-port", in.InboundPort}} {
		if slices.Contains(statusPorts, p.port) || p.port == contract.DNSPort {
			return fmt.Errorf("--%s=%q: the port is reserved; the proxy must listen on another", p.flag, fmt.Sprint(p.port))
		}
	}
	if in.ParkOnly && in.Park == ParkOff {
		return errors.New(`--park-only="true": it conflicts with --park=off; leave one of them out`)
	}
	return nil
}

// one returns a function that parses a text and stores the single value.
func one[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := parse(s)
		if err == nil {
			*to = v
		}
		return err
	}
}

// The maximum lengths of lists. They bound the memory of the node's daemon, because the lists come from the
// creator of a pod. With all lists full, and without ipset, a capture uses 22 MiB of resident memory.
const (
	MaxPorts      = 128 // ports and ranges of ports
	MaxRanges     = 256 // ranges of addresses
	MaxInterfaces = 64
	maxIDs        = 64 // users or groups; Istio's limit
)

func tooMany(most int) error { return fmt.Errorf("too many values; at most %d are possible", most) }

// list returns a function that reads values separated by commas, and drops duplicates. It skips empty entries, as
// Istio does.
func list[T comparable](most int, parse func(string) (T, error)) func(string) ([]T, error) {
	return func(s string) (out []T, err error) {
		seen := map[T]bool{}
		for part := range entries(s) {
			v, err := parse(part)
			if err != nil {
				return nil, err
			}
			if seen[v] {
				continue
			}
			if len(out) == most {
				return nil, tooMany(most)
			}
			seen[v] = true
			out = append(out, v)
		}
		return out, nil
	}
}

func entries(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" && !yield(part) {
				return
			}
		}
	}
}

func isAll(s string) bool { return strings.Trim(s, ", ") == "*" }

// selection returns a function that reads a list, or "*".
func selection[T any](to *Selection[T], list func(string) ([]T, error)) func(string) error {
	return one(to, func(s string) (v Selection[T], err error) {
		if isAll(s) {
			return Selection[T]{All: true}, nil
		}
		v.List, err = list(s)
		return v, err
	})
}

// notAll wraps set so that it refuses "*", which would exclude everything.
func notAll(each, instead string, set func(string) error) func(string) error {
	return func(s string) error {
		if isAll(s) {
			return fmt.Errorf("every %s cannot be excluded; to capture nothing outbound, leave %s empty", each, instead)
		}
		return set(s)
	}
}

func boolean(set func(bool)) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("neither true nor false")
		}
		set(v)
		return nil
	}
}

func (in *Intent) proxyPort(to *uint16) func(string) error {
	return func(s string) error {
		in.proxyPortsGiven = true
		return one(to, ParsePort)(s)
	}
}

func (in *Intent) dualStack(v bool) {
	if v {
		in.Families = DualStack
	}
}

func parseMode(s string) (Mode, error) {
	switch m := Mode(strings.ToUpper(s)); m {
	case RedirectMode, TProxyMode, NoneMode:
		return m, nil
	case "":
		return RedirectMode, nil
	}
	return "", errors.New("not a mode; one of REDIRECT, TPROXY, NONE")
}

func parseMark(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil || n == 0 {
		return 0, errors.New("not a mark; 1 to 4294967295")
	}
	if slices.Contains([]uint64{selfCallMark, tproxiedMark, refuseMark, ProofOut, ProofIn}, n) {
		return 0, fmt.Errorf("%#x is reserved; use another mark", n)
	}
	return uint32(n), nil
}

func parseTable(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 || n >= 253 && n <= 255 {
		return 0, errors.New("not a table; a number from 1, except 253 to 255, which are the system's")
	}
	return int(n), nil
}

func parseFamilies(s string) (Families, error) {
	families, ok := map[string]Families{"auto": 0, "ipv4": IPv4, "ipv6": IPv6, "dual": DualStack}[s]
	if !ok {
		return 0, errors.New("one of auto, ipv4, ipv6, dual")
	}
	return families, nil
}

func parsePark(s string) (ParkMode, error) {
	switch p := ParkMode(s); p {
	case ParkOff, ParkOn, ParkRequire:
		return p, nil
	}
	return "", errors.New("one of off, on, require")
}

func parseLimit(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > 0 && d < time.Second || d > time.Hour || d%time.Second != 0 {
		return 0, errors.New("not a time limit; whole seconds from 1s to 1h, or 0")
	}
	return d, nil
}

// ParsePort reads a port number, 1 to 65535, as iptables does: the prefix 0x means hexadecimal, any
// other leading 0 octal.
func ParsePort(s string) (uint16, error) {
	digits, base := strings.TrimSpace(s), 10
	hexadecimal, isHex := strings.CutPrefix(strings.ToLower(digits), "0x")
	switch {
	case isHex:
		digits, base = hexadecimal, 16
	case strings.HasPrefix(digits, "0"):
		base = 8
	}
	n, err := strconv.ParseUint(digits, base, 16)
	switch {
	case err == nil && n > 0:
		return uint16(n), nil
	case base == 8 && digits != "0":
		return 0, fmt.Errorf("%q is not a port: after a leading 0 the digits are octal; write it without", s)
	}
	return 0, fmt.Errorf("%q is not a port; 1 to 65535", s)
}

// portRange reads a port, or a range of ports in the syntax of iptables: 8080:8090. A missing end
// means the lowest or the highest port.
func portRange(s string) (r [2]uint16, err error) {
	first, last, isRange := strings.Cut(s, ":")
	switch {
	case s == "*" || s == ":":
		return r, errors.New("'*' is every port; list no others with it")
	case strings.Contains(s, "-"):
		return r, fmt.Errorf("%q is not a port; write a range like 8080:8090", s)
	}
	r = [2]uint16{1, 1<<16 - 1}
	if first != "" && !(isRange && first == "0") {
		if r[0], err = ParsePort(first); err != nil {
			return r, err
		}
	}
	switch {
	case !isRange:
		r[1] = r[0]
	case last != "":
		r[1], err = ParsePort(last)
	}
	if err == nil && r[0] > r[1] {
		err = fmt.Errorf("%q is not a range of ports: it ends before it begins", s)
	}
	return r, err
}

// portList reads ports and ranges, and returns each port once, sorted. Some ports can be excluded: such a port is
// an error if it is given alone, and a range skips it.
func portList(never []uint16) func(string) ([]uint16, error) {
	return func(s string) (out []uint16, err error) {
		var ranges []Interval[uint32]
		for part := range entries(s) {
			r, err := portRange(part)
			if err != nil {
				return nil, err
			}
			if r[0] == r[1] && slices.Contains(never, r[0]) {
				return nil, fmt.Errorf("status port %d is never parked: a probe must be refused at once", r[0])
			}
			if len(ranges) == MaxPorts {
				return nil, tooMany(MaxPorts)
			}
			ranges = append(ranges, Interval[uint32]{First: uint32(r[0]), Last: uint32(r[1])})
		}
		for _, r := range Join(ByPort, ranges) {
			for port := r.First; port <= r.Last; port++ {
				if !slices.Contains(never, uint16(port)) {
					out = append(out, uint16(port))
				}
			}
		}
		return out, nil
	}
}

// parsePrefix reads an address range, or a single address as a range of one. It clears host bits.
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

func parseLoopback(s string) (netip.Prefix, error) {
	p, err := parsePrefix(s)
	if err == nil && (!p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8) {
		err = errors.New("not within 127.0.0.0/8")
	}
	return p, err
}

// id returns a function that reads a user or a group, given by number or by name.
func id(lookup Lookup, kind string) func(string) (uint32, error) {
	return func(s string) (uint32, error) {
		if n, ok := ParseID(s); ok {
			return n, nil
		}
		if lookup == nil {
			return 0, fmt.Errorf("%q is not the number of a %s", s, kind)
		}
		id, err := lookup(s)
		if err != nil {
			return 0, fmt.Errorf("there is no %s %q here; use its number, or a name from this machine", kind, s)
		}
		return id, nil
	}
}

// ParseID parses the number of a user or a group. The highest number is invalid: the kernel uses it
// for "no id".
func ParseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && uint32(n) != ^uint32(0)
}

// ParseInterface reads the name of a network interface. The kernel accepts 1 to 15 bytes,
// without white space and slash (dev_valid_name).
func ParseInterface(s string) (string, error) {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/:"\+*`, r) }
	if len(s) > 15 || s == "." || s == ".." || strings.ContainsFunc(s, bad) {
		return "", fmt.Errorf("%q is not the name of a network interface", s)
	}
	return s, nil
}

// interfacePattern reads an interface name. As in iptables, a + at its end makes it a prefix of
// names.
func interfacePattern(s string) (string, error) {
	prefix, _ := strings.CutSuffix(s, "+")
	switch {
	case prefix == "":
		return "", fmt.Errorf("%q is every network interface; name some, or capture nothing with -m NONE", s)
	case len(s) > 15:
		return "", fmt.Errorf("%q is not the name of a network interface", s)
	case strings.ContainsAny(s[:1], "-!"):
		return "", fmt.Errorf("%q begins with a sign that iptables does not take for a part of the name", s)
	}
	_, err := ParseInterface(prefix)
	return s, err
}
