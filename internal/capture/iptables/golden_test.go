package iptables

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/internal/capture"
)

var update = flag.Bool("update", false, "rewrite testdata")

// capturing is the intent of a mesh's init container.
func capturing(families capture.Families) capture.Intent {
	in := capture.Defaults()
	in.Families = families
	in.InboundPorts.All = true
	in.OutboundRanges.All = true
	return in
}

func withDNS(families capture.Families) capture.Intent {
	in := capturing(families)
	in.DNS = capture.DNSServers
	for _, s := range []string{"fd00::a", "10.0.0.10"} {
		in.Nameservers = append(in.Nameservers, netip.MustParseAddr(s))
	}
	in.ExcludeOutboundRanges = prefixes("fd00:1::/64", "10.9.0.0/16", "fd00:2::/64")
	return in
}

func withTProxy(families capture.Families) capture.Intent {
	in := capturing(families)
	in.Mode = capture.TProxyMode
	in.DropInvalid = true
	in.VirtualInterfaces = []string{"virt0"}
	return in
}

func TestRenderedText(t *testing.T) {
	intents := map[string]capture.Intent{
		"dns":    withDNS(capture.DualStack),
		"tproxy": withTProxy(capture.DualStack),
	}
	for name, in := range intents {
		rs, _ := capture.Build(in, capture.IPTables)
		four, six := render(t, rs)
		for file, got := range map[string]string{name + "-4.rules": four, name + "-6.rules": six} {
			t.Run(file, func(t *testing.T) {
				path := filepath.Join("testdata", file)
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("%s is not what is rendered (go test -update rewrites it):\n%s", path, got)
				}
			})
		}
	}
}
