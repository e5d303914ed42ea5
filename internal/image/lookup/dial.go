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

// newTransport returns the default transport. The author of a pod chooses a registry, and
// the registry chooses others by redirects: none may be this machine, or on its link alone,
// such as a cloud's metadata service. Exceptions are the insecure registries and the proxies,
// which then decide for themselves.
func newTransport(insecure []string, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	var proxies sync.Map // the hosts of those in use
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
	guarded.Control = func(_, address string, _ syscall.RawConn) error { return checkAddress(address) }
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(address)
		if exempt(address) || (port == "80" || port == "443") && exempt(host) {
			return open.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
	return t
}

// checkAddress refuses the addresses of this machine and its link.
func checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%s is this machine or its link, which registries must not be: if that is intended, name the registry by --insecure-registry", ip)
	}
	return nil
}
