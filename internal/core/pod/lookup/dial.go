package lookup

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"
)

// newTransport returns the transport that is used by default. The author of a pod chooses the registry, and the
// registry can redirect to any host. Therefore the transport does not connect to this machine, to link-local
// addresses (such as a cloud's metadata service), or to private networks that are not allowed. Insecure
// registries and proxies are exempt; a proxy must check addresses itself.
func newTransport(insecure []string, allowed []netip.Prefix, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	var proxies sync.Map // hosts of the proxies that were used
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 64 << 10
	t.Proxy = nil
	if proxy != nil {
		t.Proxy = func(req *http.Request) (*url.URL, error) {
			u, err := proxy(req)
			if err == nil && u != nil {
				proxies.Store(u.Host, true)
			}
			return u, err
		}
	}
	exempt := func(host string) bool {
		_, isProxy := proxies.Load(host)
		return isProxy || slices.Contains(insecure, host)
	}
	open := net.Dialer{Timeout: 10 * time.Second}
	guarded := open
	guarded.Control = func(_, address string, _ syscall.RawConn) error { return checkAddress(address, allowed) }
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(address)
		if exempt(address) || (port == "80" || port == "443") && exempt(host) {
			return open.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
	return t
}

// Private lists the networks that organisations use internally (RFC 1918, RFC 4193), and those that carriers and
// clouds use internally (RFC 6598).
var Private = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")

// special lists the other networks that are not part of the internet, and tunnels, from IANA's special-purpose
// address registries (RFC 6890).
var special = prefixes("0.0.0.0/8", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16", "fec0::/10")

// nat64 is the network whose addresses contain an IPv4 address in their last bytes (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// checkAddress returns an error for addresses of this machine, link-local addresses, and addresses in networks
// that are neither part of the internet nor allowed.
func checkAddress(address string, allowed []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap().WithZone("")
	shown := ip.String()
	if nat64.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
		shown += " (" + ip.String() + ")"
	}
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast():
		return fmt.Errorf("%s is this machine or its link, which registries must not be: if that is intended, name the registry by --insecure-registry", shown)
	case slices.ContainsFunc(allowed, within):
	case slices.ContainsFunc(Private, within) || slices.ContainsFunc(special, within):
		return fmt.Errorf("%s is in a private or special network, where no registry may be: if that is intended, allow the network by --registry-network", shown)
	}
	return nil
}
