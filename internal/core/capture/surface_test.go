package capture_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/internal/core/capture"
)

// surface lists the names, variables and defaults on which users rely. They are Istio's.
const surface = `
-p envoy-port string "15001" ENVOY_PORT
-z inbound-capture-port string "15006" INBOUND_CAPTURE_PORT
-e inbound-tunnel-port string "15008" INBOUND_TUNNEL_PORT
-u proxy-uid string "1337" PROXY_UID ENVOY_USER
-g proxy-gid string "as --proxy-uid" PROXY_GID
outbound-owner-groups string "*" ISTIO_OUTBOUND_OWNER_GROUPS
outbound-owner-groups-exclude string "" ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE
-m istio-inbound-interception-mode string "REDIRECT" ISTIO_INBOUND_INTERCEPTION_MODE
-b istio-inbound-ports string "" ISTIO_INBOUND_PORTS
-d istio-local-exclude-ports string "" ISTIO_LOCAL_EXCLUDE_PORTS
-t istio-inbound-tproxy-mark string "1337" ISTIO_INBOUND_TPROXY_MARK
-r istio-inbound-tproxy-route-table string "133" ISTIO_INBOUND_TPROXY_ROUTE_TABLE
-i istio-service-cidr string "" ISTIO_SERVICE_CIDR
-x istio-service-exclude-cidr string "" ISTIO_SERVICE_EXCLUDE_CIDR
-q istio-outbound-ports string "" ISTIO_OUTBOUND_PORTS
-o istio-local-outbound-ports-exclude string "" ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE
outbound-ipv4-loopback-cidr string "127.0.0.1/32" ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR
-c istio-exclude-interfaces string "" ISTIO_EXCLUDE_INTERFACES
-k kube-virt-interfaces string "" KUBE_VIRT_INTERFACES
redirect-dns bool "false" REDIRECT_DNS ISTIO_META_DNS_CAPTURE
capture-all-dns bool "false" CAPTURE_ALL_DNS
drop-invalid bool "false" DROP_INVALID INVALID_DROP
dual-stack bool "false" DUAL_STACK ISTIO_DUAL_STACK
families string "auto" OUTRIDER_FAMILIES
park string "on" OUTRIDER_PARK
park-ports string "" OUTRIDER_PARK_PORTS
park-limit string "1m" OUTRIDER_PARK_LIMIT
park-only bool "false" OUTRIDER_PARK_ONLY
`

func TestSurface(t *testing.T) {
	in := capture.Defaults()
	var b strings.Builder
	b.WriteString("\n")
	for _, f := range capture.Flags(&in, nil, nil) {
		if f.Short != "" {
			fmt.Fprintf(&b, "-%s ", f.Short)
		}
		fmt.Fprintf(&b, "%s %s %q %s\n", f.Name, f.Type(), f, strings.Join(f.Env, " "))
		if f.Usage == "" {
			t.Errorf("--%s has no usage text", f.Name)
		}
	}
	if diff := cmp.Diff(surface, b.String()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

// Each default in the usage text is the behaviour without the flag.
func TestDefaultsAreWhatTheUsageSays(t *testing.T) {
	got := capture.Defaults()
	for _, f := range capture.Flags(&got, nil, nil) {
		if f.Name == "proxy-uid" || f.Name == "proxy-gid" {
			continue // Build fills in this default: see the scenarios
		}
		if err := f.Set(f.String()); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(capture.Defaults(), got, sameIntent); diff != "" {
		t.Errorf("intent (-without flags +with every default):\n%s", diff)
	}
}

func TestFlagString(t *testing.T) {
	in := capture.Defaults()
	f := capture.Flags(&in, nil, nil)[0]
	if err := f.Set("16001"); err != nil || f.String() != "16001" {
		t.Errorf("after Set: %q, %v", f, err)
	}
	if err := f.Set("x"); err == nil || f.String() != "16001" {
		t.Errorf("after a value that is refused: %q, %v", f, err)
	}
}

func TestCheck(t *testing.T) {
	const taken = "the port is reserved; the proxy must listen on another"
	tests := map[string]string{
		"":                           "",
		"envoy-port=15006":           "", // the two ports may be equal: the proxy then has one listener
		"envoy-port=15020":           `--envoy-port="15020": ` + taken,
		"envoy-port=15053":           `--envoy-port="15053": ` + taken,
		"inbound-capture-port=15021": `--inbound-capture-port="15021": ` + taken,
		"inbound-capture-port=15090": `--inbound-capture-port="15090": ` + taken,
		"park-only=true":             "",
		"park-only=true park=off":    `--park-only="true": it conflicts with --park=off; leave one of them out`,
		"park=off":                   "",
	}
	for args, want := range tests {
		t.Run(args, func(t *testing.T) {
			in := capture.Defaults()
			if err := set(&in, strings.Fields(args)...); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := in.Check(); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("Check\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestFamiliesOf(t *testing.T) {
	tests := map[string]capture.Families{
		"":                             capture.IPv4,
		"127.0.0.1 ::1":                capture.IPv4,
		"10.9.0.2":                     capture.IPv4,
		"10.9.0.2 fe80::1":             capture.IPv4,
		"10.9.0.2 fd09::2":             capture.DualStack,
		"fd09::2 10.9.0.2 ::1 fe80::1": capture.DualStack,
		"fd09::2":                      capture.DualStack,
		"::1 127.0.0.1 2001:db8::1":    capture.DualStack,
		"::ffff:10.9.0.2":              capture.IPv4,
		"169.254.1.1":                  capture.IPv4,
	}
	for addrs, want := range tests {
		t.Run(addrs, func(t *testing.T) {
			var list []netip.Addr
			for _, a := range strings.Fields(addrs) {
				list = append(list, netip.MustParseAddr(a))
			}
			if got := capture.FamiliesOf(list); got != want {
				t.Errorf("FamiliesOf = %s, want %s", got, want)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	const (
		noServer   = "--redirect-dns has no effect: there is no name server to capture; --capture-all-dns needs none"
		noTimes    = "TPROXY with the iptables backend parks inbound connections without a time limit: callers wait for as long as they choose to"
		noTimesAny = "--park-ports '*' has no time limit with the iptables backend: callers wait for as long as they choose to"
		status     = "-b lists port 15020, which is never captured: the kubelet and Prometheus use it also while the proxy is down"
		tproxy     = "istio-inbound-interception-mode=TPROXY istio-inbound-ports=*"
	)
	tests := map[string]struct{ nft, ipt []string }{
		"":                                       {},
		"redirect-dns=true":                      {[]string{noServer}, []string{noServer}},
		"redirect-dns=true capture-all-dns=true": {},
		"istio-inbound-ports=15020,80":           {[]string{status}, []string{status}},
		tproxy:                                   {nil, []string{noTimes}},
		tproxy + " park-limit=0":                 {},
		tproxy + " park=off":                     {nil, []string{"TPROXY with the iptables backend drops inbound connections that have no listener, also with --park=off"}},
		tproxy + " istio-local-exclude-ports=*":  {},
		"park-ports=*":                           {nil, []string{noTimesAny}},
		"park-ports=* park-limit=0":              {},
		"park-ports=* park=off":                  {},
		"redirect-dns=true istio-inbound-interception-mode=NONE": {},
	}
	for args, want := range tests {
		t.Run(args, func(t *testing.T) {
			in := capture.Defaults()
			in.Families = capture.DualStack
			if err := set(&in, strings.Fields(args)...); err != nil {
				t.Fatal(err)
			}
			for backend, want := range map[string][]string{capture.NFTables: want.nft, capture.IPTables: want.ipt} {
				_, notes := capture.Build(in, backend)
				if diff := cmp.Diff(want, notes, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("notes for %s (-want +got):\n%s", backend, diff)
				}
			}
		})
	}
}
