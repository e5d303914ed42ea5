package capture_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/internal/core/capture"
)

// lookup knows one user and one group.
func lookup(name string) (uint32, error) {
	if name == "istio-proxy" {
		return 1337, nil
	}
	return 0, errors.New("unknown")
}

// sameIntent compares intents by their visible content.
var sameIntent = cmp.Options{
	cmpopts.IgnoreUnexported(capture.Intent{}), cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
}

// set sets flags of an intent, and returns the first error.
func set(in *capture.Intent, args ...string) error {
	flags := capture.Flags(in, lookup, lookup)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		i := slices.IndexFunc(flags, func(f *capture.Flag) bool { return f.Name == name })
		if i < 0 {
			return fmt.Errorf("the test gives an unknown flag %q", name)
		}
		if err := flags[i].Set(value); err != nil {
			return err
		}
	}
	return nil
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

type intent = capture.Intent

func TestFlagsSet(t *testing.T) {
	tests := map[string]func(*intent){
		"envoy-port=16001":                                    func(in *intent) { in.OutboundPort = 16001 },
		"envoy-port=0x3e81":                                   func(in *intent) { in.OutboundPort = 16001 },
		"inbound-tunnel-port=0X3E81":                          func(in *intent) { in.TunnelPort = 16001 },
		"inbound-capture-port=037201":                         func(in *intent) { in.InboundPort = 16001 },
		"istio-inbound-ports=8080:8082":                       func(in *intent) { in.InboundPorts.List = []uint16{8080, 8081, 8082} },
		"istio-inbound-ports=0x1f90:8081,80,8081:8082,80:80,": func(in *intent) { in.InboundPorts.List = []uint16{80, 8080, 8081, 8082} },
		"istio-local-exclude-ports=:3,65534:":                 func(in *intent) { in.ExcludeInboundPorts.List = []uint16{1, 2, 3, 65534, 65535} },
		"istio-outbound-ports=0:1":                            func(in *intent) { in.OutboundPorts.List = []uint16{1} },
		"istio-local-outbound-ports-exclude=25, 24:26":        func(in *intent) { in.ExcludeOutboundPorts = []uint16{24, 25, 26} },
		"park-ports=15019:15023":                              func(in *intent) { in.ParkPorts.List = []uint16{15019, 15022, 15023} },
		"istio-exclude-interfaces=eth+,eth+,a23456789012345":  func(in *intent) { in.ExcludeInterfaces = []string{"eth+", "a23456789012345"} },
		"kube-virt-interfaces=k6t-+":                          func(in *intent) { in.VirtualInterfaces = []string{"k6t-+"} },
		"envoy-port= 16001 ":                                  func(in *intent) { in.OutboundPort = 16001 },
		"envoy-port=65535":                                    func(in *intent) { in.OutboundPort = 65535 },
		"inbound-capture-port=1":                              func(in *intent) { in.InboundPort = 1 },
		"inbound-tunnel-port=15009":                           func(in *intent) { in.TunnelPort = 15009 },
		"proxy-uid=1337":                                      func(in *intent) { in.ProxyUIDs = []uint32{1337} },
		"proxy-uid=0, 7,7,":                                   func(in *intent) { in.ProxyUIDs = []uint32{0, 7} },
		"proxy-uid=istio-proxy":                               func(in *intent) { in.ProxyUIDs = []uint32{1337} },
		"proxy-uid=4294967294":                                func(in *intent) { in.ProxyUIDs = []uint32{4294967294} },
		"proxy-uid=":                                          func(in *intent) {},
		"proxy-gid=5,istio-proxy":                             func(in *intent) { in.ProxyGIDs = []uint32{5, 1337} },
		"outbound-owner-groups=*":                             func(in *intent) {},
		"outbound-owner-groups=":                              func(in *intent) { in.OwnerGroups = capture.Groups{} },
		"outbound-owner-groups=1,istio-proxy":                 func(in *intent) { in.OwnerGroups = capture.Groups{List: []uint32{1, 1337}} },
		"outbound-owner-groups=" + many(64, "%d"): func(in *intent) {
			in.OwnerGroups = capture.Groups{}
			for i := range uint32(64) {
				in.OwnerGroups.List = append(in.OwnerGroups.List, i)
			}
		},
		"outbound-owner-groups-exclude=2":                func(in *intent) { in.ExcludeOwnerGroups = []uint32{2} },
		"istio-inbound-interception-mode=TPROXY":         func(in *intent) { in.Mode = capture.TProxyMode },
		"istio-inbound-interception-mode=none":           func(in *intent) { in.Mode = capture.NoneMode },
		"istio-inbound-interception-mode=":               func(in *intent) { in.Mode = capture.RedirectMode },
		"istio-inbound-ports=*":                          func(in *intent) { in.InboundPorts.All = true },
		"istio-inbound-ports=80,, 443,80":                func(in *intent) { in.InboundPorts.List = []uint16{80, 443} },
		"istio-inbound-ports=":                           func(in *intent) {},
		"istio-local-exclude-ports=15090,15020":          func(in *intent) { in.ExcludeInboundPorts.List = []uint16{15020, 15090} },
		"istio-local-exclude-ports=*":                    func(in *intent) { in.ExcludeInboundPorts.All = true },
		"istio-inbound-tproxy-mark=0x600":                func(in *intent) { in.TProxyMark = 0x600 },
		"istio-inbound-tproxy-mark=4294967295":           func(in *intent) { in.TProxyMark = 1<<32 - 1 },
		"istio-inbound-tproxy-route-table=252":           func(in *intent) { in.TProxyTable = 252 },
		"istio-inbound-tproxy-route-table=256":           func(in *intent) { in.TProxyTable = 256 },
		"istio-service-cidr=*":                           func(in *intent) { in.OutboundRanges.All = true },
		"istio-service-cidr= * ":                         func(in *intent) { in.OutboundRanges.All = true },
		"istio-service-cidr=":                            func(in *intent) {},
		"istio-service-cidr=10.1.2.3/8, fd00::1/8,":      func(in *intent) { in.OutboundRanges.List = prefixes("10.0.0.0/8", "fd00::/8") },
		"istio-service-cidr=10.1.2.3,10.1.2.3/32,fd00::": func(in *intent) { in.OutboundRanges.List = prefixes("10.1.2.3/32", "fd00::/128") },
		"istio-service-cidr=::ffff:10.1.2.3":             func(in *intent) { in.OutboundRanges.List = prefixes("10.1.2.3/32") },
		"istio-service-exclude-cidr=0.0.0.0/0":           func(in *intent) { in.ExcludeOutboundRanges = prefixes("0.0.0.0/0") },
		"istio-service-exclude-cidr=":                    func(in *intent) {},
		"istio-outbound-ports=9000":                      func(in *intent) { in.OutboundPorts.List = []uint16{9000} },
		"istio-outbound-ports=*":                         func(in *intent) { in.OutboundPorts.All = true },
		"istio-local-outbound-ports-exclude=25,465":      func(in *intent) { in.ExcludeOutboundPorts = []uint16{25, 465} },
		"outbound-ipv4-loopback-cidr=127.0.0.9/8":        func(in *intent) { in.Loopback = netip.MustParsePrefix("127.0.0.0/8") },
		"outbound-ipv4-loopback-cidr=127.0.0.2":          func(in *intent) { in.Loopback = netip.MustParsePrefix("127.0.0.2/32") },
		"istio-exclude-interfaces=eth0, net1.5,eth0":     func(in *intent) { in.ExcludeInterfaces = []string{"eth0", "net1.5"} },
		"kube-virt-interfaces=a23456789012345":           func(in *intent) { in.VirtualInterfaces = []string{"a23456789012345"} },
		"redirect-dns=true":                              func(in *intent) { in.DNS = capture.DNSServers },
		"redirect-dns=0":                                 func(in *intent) {},
		"capture-all-dns=true":                           func(in *intent) {},
		"capture-all-dns=true;redirect-dns=true":         func(in *intent) { in.DNS = capture.DNSAll },
		"redirect-dns=true;capture-all-dns=1":            func(in *intent) { in.DNS = capture.DNSAll },
		"redirect-dns=true;redirect-dns=false":           func(in *intent) {},
		"drop-invalid=t":                                 func(in *intent) { in.DropInvalid = true },
		"dual-stack=true":                                func(in *intent) { in.Families = capture.DualStack },
		"dual-stack=false":                               func(in *intent) {},
		"families=ipv4":                                  func(in *intent) { in.Families = capture.IPv4 },
		"families=ipv6":                                  func(in *intent) { in.Families = capture.IPv6 },
		"families=dual":                                  func(in *intent) { in.Families = capture.DualStack },
		"families=ipv4;families=auto":                    func(in *intent) {},
		"park=off":                                       func(in *intent) { in.Park = capture.ParkOff },
		"park=on":                                        func(in *intent) {},
		"park=require":                                   func(in *intent) { in.Park = capture.ParkRequire },
		"park-ports=8082,8083":                           func(in *intent) { in.ParkPorts.List = []uint16{8082, 8083} },
		"park-ports=*":                                   func(in *intent) { in.ParkPorts.All = true },
		"park-limit=0":                                   func(in *intent) { in.ParkLimit = 0 },
		"park-limit=1s":                                  func(in *intent) { in.ParkLimit = time.Second },
		"park-limit=1m30s":                               func(in *intent) { in.ParkLimit = 90 * time.Second },
		"park-limit=1h":                                  func(in *intent) { in.ParkLimit = time.Hour },
		"park-only=true":                                 func(in *intent) { in.ParkOnly = true },
	}
	covered := map[string]bool{}
	for args, change := range tests {
		t.Run(args, func(t *testing.T) {
			want, got := capture.Defaults(), capture.Defaults()
			change(&want)
			if err := set(&got, strings.Split(args, ";")...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, sameIntent); diff != "" {
				t.Errorf("intent (-want +got):\n%s", diff)
			}
		})
		for _, arg := range strings.Split(args, ";") {
			name, _, _ := strings.Cut(arg, "=")
			covered[name] = true
		}
	}
	in := capture.Defaults()
	for _, f := range capture.Flags(&in, nil, nil) {
		if !covered[f.Name] {
			t.Errorf("no good value of --%s is tried", f.Name)
		}
	}
}

func TestFlagsRefuse(t *testing.T) {
	const (
		noRange = "is not an address range; write it like 10.0.0.0/8 or fd00::/8"
		noLimit = "not a time limit; whole seconds from 1s to 1h, or 0"
		noTable = "not a table; a number from 1, except 253 to 255, which are the system's"
		noLink  = "is not the name of a network interface"
	)
	tests := map[string]string{ // each message starts with the given value
		"envoy-port=70000":                          `"70000" is not a port; 1 to 65535`,
		"envoy-port=-5":                             `"-5" is not a port; 1 to 65535`,
		"envoy-port=":                               `"" is not a port; 1 to 65535`,
		"inbound-capture-port=0":                    `"0" is not a port; 1 to 65535`,
		"inbound-tunnel-port=abc":                   `"abc" is not a port; 1 to 65535`,
		"inbound-tunnel-port=*":                     `"*" is not a port; 1 to 65535`,
		"proxy-uid=no-such-name":                    `there is no user "no-such-name" here; use its number, or a name from this machine`,
		"proxy-uid=-1":                              `there is no user "-1" here; use its number, or a name from this machine`,
		"proxy-uid=4294967295":                      `there is no user "4294967295" here; use its number, or a name from this machine`,
		"proxy-gid=1,no-such-name":                  `there is no group "no-such-name" here; use its number, or a name from this machine`,
		"outbound-owner-groups=*,5":                 `there is no group "*" here; use its number, or a name from this machine`,
		"outbound-owner-groups-exclude=x":           `there is no group "x" here; use its number, or a name from this machine`,
		"istio-inbound-interception-mode=FOO":       `not a mode; one of REDIRECT, TPROXY, NONE`,
		"istio-inbound-ports=80,*":                  `'*' is every port; list no others with it`,
		"istio-inbound-ports=80,65536":              `"65536" is not a port; 1 to 65535`,
		"istio-local-exclude-ports=*,80":            `'*' is every port; list no others with it`,
		"istio-local-exclude-ports=80;81":           `"80;81" is not a port; 1 to 65535`,
		"istio-inbound-tproxy-mark=0":               `not a mark; 1 to 4294967295`,
		"istio-inbound-tproxy-mark=4294967296":      `not a mark; 1 to 4294967295`,
		"istio-inbound-tproxy-mark=1338":            `0x53a is reserved; use another mark`,
		"istio-inbound-tproxy-mark=0x4f750001":      `0x4f750001 is reserved; use another mark`,
		"istio-inbound-tproxy-route-table=0":        noTable,
		"istio-inbound-tproxy-route-table=253":      noTable,
		"istio-inbound-tproxy-route-table=255":      noTable,
		"istio-inbound-tproxy-route-table=254":      noTable,
		"istio-inbound-tproxy-route-table=main":     noTable,
		"istio-service-cidr=10.0.0.0/33":            `"10.0.0.0/33" ` + noRange,
		"istio-service-cidr=10.0.0/8":               `"10.0.0/8" ` + noRange,
		"istio-service-cidr=*,10.0.0.0/8":           `"*" ` + noRange,
		"istio-service-cidr=::ffff:10.0.0.0/104":    `"::ffff:10.0.0.0/104" ` + noRange,
		"istio-service-cidr=fe80::1%eth0":           `"fe80::1%eth0" ` + noRange,
		"istio-service-exclude-cidr=*":              `every address cannot be excluded; to capture nothing outbound, leave -i empty`,
		"istio-service-exclude-cidr=10.0.0.0/8,x":   `"x" ` + noRange,
		"istio-outbound-ports=http":                 `"http" is not a port; 1 to 65535`,
		"istio-outbound-ports=*,80":                 `'*' is every port; list no others with it`,
		"istio-local-outbound-ports-exclude=*":      `every port cannot be excluded; to capture nothing outbound, leave -i and -q empty`,
		"istio-local-outbound-ports-exclude=0":      `"0" is not a port; 1 to 65535`,
		"outbound-ipv4-loopback-cidr=10.0.0.0/8":    `not within 127.0.0.0/8`,
		"outbound-ipv4-loopback-cidr=127.0.0.0/7":   `not within 127.0.0.0/8`,
		"outbound-ipv4-loopback-cidr=::1":           `not within 127.0.0.0/8`,
		"outbound-ipv4-loopback-cidr=":              `"" ` + noRange,
		"istio-exclude-interfaces=a234567890123456": `"a234567890123456" ` + noLink,
		"istio-exclude-interfaces=e+h0":             `"e+h0" ` + noLink,
		"istio-exclude-interfaces=eth++":            `"eth+" ` + noLink,
		"istio-exclude-interfaces=a23456789012345+": `"a23456789012345+" ` + noLink,
		"kube-virt-interfaces=-":                    `"-" begins with a sign that iptables does not take for a part of the name`,
		"istio-exclude-interfaces=+":                `"+" is every network interface; name some, or capture nothing with -m NONE`,
		"istio-inbound-ports=90:80":                 `"90:80" is not a range of ports: it ends before it begins`,
		"istio-inbound-ports=80:90:100":             `"90:100" is not a port; 1 to 65535`,
		"istio-inbound-ports=80-90":                 `"80-90" is not a port; write a range like 8080:8090`,
		"istio-inbound-ports=80:65536":              `"65536" is not a port; 1 to 65535`,
		"istio-inbound-ports=0:0":                   `"0" is not a port; 1 to 65535`,
		"istio-inbound-ports=:":                     `'*' is every port; list no others with it`,
		"istio-inbound-ports=080":                   `"080" is not a port: after a leading 0 the digits are octal; write it without`,
		"istio-inbound-ports=0x":                    `"0x" is not a port; 1 to 65535`,
		"istio-inbound-ports=0x10000":               `"0x10000" is not a port; 1 to 65535`,
		"istio-inbound-ports=1_000":                 `"1_000" is not a port; 1 to 65535`,
		"istio-inbound-ports=+80":                   `"+80" is not a port; 1 to 65535`,
		"istio-exclude-interfaces=eth0,a b":         `"a b" ` + noLink,
		"kube-virt-interfaces=..":                   `".." ` + noLink,
		"kube-virt-interfaces=a/b":                  `"a/b" ` + noLink,
		"kube-virt-interfaces=\u00e9th":             "\"\u00e9th\" " + noLink,
		"redirect-dns=yes":                          `neither true nor false`,
		"capture-all-dns=":                          `neither true nor false`,
		"drop-invalid=2":                            `neither true nor false`,
		"dual-stack=on":                             `neither true nor false`,
		"families=IPv4":                             `one of auto, ipv4, ipv6, dual`,
		"families=":                                 `one of auto, ipv4, ipv6, dual`,
		"park=true":                                 `one of off, on, require`,
		"park-ports=15021":                          `status port 15021 is never parked: a probe must be refused at once`,
		"park-ports=8082,15020":                     `status port 15020 is never parked: a probe must be refused at once`,
		"park-ports=*,1":                            `'*' is every port; list no others with it`,
		"park-limit=500ms":                          noLimit,
		"park-limit=1500ms":                         noLimit,
		"park-limit=1h1s":                           noLimit,
		"park-limit=-1s":                            noLimit,
		"park-limit=60":                             noLimit,
		"park-limit=":                               noLimit,
		"park-only=maybe":                           `neither true nor false`,
	}
	covered := map[string]bool{}
	for arg, message := range tests {
		name, value, _ := strings.Cut(arg, "=")
		covered[name] = true
		t.Run(arg, func(t *testing.T) {
			in := capture.Defaults()
			err := set(&in, arg)
			if want := fmt.Sprintf("--%s=%q: %s", name, value, message); fmt.Sprint(err) != want {
				t.Errorf("error\n got %v\nwant %s", err, want)
			}
		})
	}
	in := capture.Defaults()
	for _, f := range capture.Flags(&in, nil, nil) {
		if !covered[f.Name] {
			t.Errorf("no bad value of --%s is tried", f.Name)
		}
	}
}

func many(n int, format string) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return strings.Join(list, ",")
}

// Each list has a maximum length, which the error names together with the flag.
func TestListsAreBounded(t *testing.T) {
	const ids, ports, ranges, interfaces = "64 %d", "128 10%03d", "256 fd00::%d", "64 eth%d"
	for name, kind := range map[string]string{
		"proxy-uid": ids, "proxy-gid": ids, "outbound-owner-groups": ids, "outbound-owner-groups-exclude": ids,
		"istio-inbound-ports": ports, "istio-local-exclude-ports": ports, "istio-outbound-ports": ports, "istio-local-outbound-ports-exclude": ports, "park-ports": ports,
		"istio-service-cidr": ranges, "istio-service-exclude-cidr": ranges, "istio-exclude-interfaces": interfaces, "kube-virt-interfaces": interfaces,
	} {
		bound, format, _ := strings.Cut(kind, " ")
		n, _ := strconv.Atoi(bound)
		in := capture.Defaults()
		if err := set(&in, name+"="+many(n, format)); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("--%s=%.200q: too many values; at most %d are possible", name, many(n+1, format), n)
		if err := set(&in, name+"="+many(n+1, format)); fmt.Sprint(err) != want {
			t.Errorf("error\n got %v\nwant %s", err, want)
		}
	}
}

func TestNamesNeedALookup(t *testing.T) {
	in := capture.Defaults()
	for _, f := range capture.Flags(&in, nil, nil) {
		kind, ok := map[string]string{"proxy-uid": "user", "proxy-gid": "group"}[f.Name]
		if !ok {
			continue
		}
		want := fmt.Sprintf(`--%s="istio-proxy": "istio-proxy" is not the number of a %s`, f.Name, kind)
		if err := f.Set("istio-proxy"); err == nil || err.Error() != want {
			t.Errorf("error\n got %v\nwant %s", err, want)
		}
	}
}
