package lookup

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"
)

// transport is the default one. Who writes a pod names a registry, and the registry names
// others: none of them may be this machine, or what answers on its link alone, such as a
// cloud's metadata; unless it is named as an insecure registry, or a proxy of the
// environment, which then decides for itself.
func transport(insecure []string) *http.Transport {
	named := slices.Clone(insecure)
	for _, variable := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if u, err := url.Parse(os.Getenv(variable)); err == nil && u.Host != "" {
			named = append(named, u.Host)
		}
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 64 << 10
	open := net.Dialer{Timeout: 10 * time.Second}
	guarded := open
	guarded.Control = func(_, address string, _ syscall.RawConn) error { return outside(address) }
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(address)
		if slices.Contains(named, address) || (port == "80" || port == "443") && slices.Contains(named, host) {
			return open.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
	return t
}

// outside says whether an address is neither this machine's own nor its link's.
func outside(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%s is not asked, since it is this machine or its link: name the registry by --insecure-registry if that is meant", ip)
	}
	return nil
}
