package mesh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/test/authorization"
	"outrider.dev/test/process"
)

// A door is a shop whose server has authorization policies.
type door struct {
	*shop
	callers map[string]*pod
	set     []mesh.Key
	number  int
}

func newDoor(t *testing.T) *door {
	s := newShop(t)
	d := &door{shop: s, callers: map[string]*pod{"client": s.client, "plain": s.plain, "other": s.pod("other", "other").proxied()}}
	for name, p := range map[string]*pod{"server": s.server, "plain": s.plain, "client": s.client, "other": d.callers["other"]} {
		if p.v4.String() != authorization.Addresses[name] {
			t.Fatalf("%s has the address %s; the table says %s", name, p.v4, authorization.Addresses[name])
		}
	}
	return d
}

// policies replaces all policies, and waits until the server's proxy has them. It adds a policy with a path that no
// test requests, and waits until the path appears in the proxy's configuration.
func (d *door) policies(t *testing.T, parts ...mesh.Part) {
	t.Helper()
	d.number++
	mark := fmt.Sprintf("mark-%d-", d.number)
	parts = append(parts, &mesh.AuthorizationSpec{Name: "mark", Namespace: namespace, Selector: map[string]string{"app": "server"}, Deny: true, Rules: []mesh.AuthorizationRule{{
		To: [][]mesh.Condition{{{Of: mesh.AppPortNumber, Values: []string{"8080"}}, {Of: mesh.Path, Values: []string{"/" + mark}}}},
	}}})
	d.source.change(func(b *build.Builder) {
		b.Delete(d.set...)
		b.Set(parts...)
	})
	d.set = nil
	for _, p := range parts {
		d.set = append(d.set, p.Key())
	}
	d.eventually(t, "the policies in the server's proxy", func() bool {
		raw, err := d.server.admin.Get(context.Background(), "/config_dump", "resource=dynamic_listeners&mask=active_state")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(raw), mark) >= 3 // one for each inbound listener
	})
}

// becomes repeats a call until it has the wanted result, because Envoy's threads may apply new policies later than
// they appear in its configuration.
func (d *door) becomes(t *testing.T, what, want string, call func() string) {
	t.Helper()
	process.EventuallyEqual(t, what, want, call, d.envoys...)
}

// call makes a call and returns its outcome: "allowed", "denied", or a text with any other result.
func (d *door) call(c authorization.Call) string {
	from, to := d.callers[c.From], netip.AddrPortFrom(d.server.v4, authorization.Ports[c.Port]).String()
	switch c.Port {
	case "http":
		return from.request(c.Method, "http://"+to+c.Path, c.Host, nil)
	case "tcp":
		switch got := from.send(to, "PING"); got {
		case "server PING":
			return "allowed"
		case closed:
			return "denied"
		default:
			return got
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	conn, err := from.dial(ctx, "tcp", to)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(process.Patience))
	fmt.Fprintln(conn, "PING")
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		switch {
		case line == "PING\n":
			return "allowed"
		case err != nil && failure(err) == closed:
			return "denied"
		case err != nil:
			return err.Error()
		}
	}
}

func (p *pod) request(method, url, host string, header http.Header) string {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err.Error()
	}
	r.Host = host
	for k, v := range header { // any order: a map
		r.Header[k] = v
	}
	response, err := p.client().Do(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	switch {
	case response.StatusCode == http.StatusOK:
		return "allowed"
	case response.StatusCode == http.StatusForbidden && string(body) == "RBAC: access denied":
		return "denied"
	}
	return fmt.Sprintf("%s %s", response.Status, body)
}

// Envoy allows and denies the calls as in the table of package authorization, and counts them in its metrics.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for _, c := range authorization.Table(t) {
		t.Run(c.Name, func(t *testing.T) {
			d.policies(t, c.Parts...)
			for want, calls := range map[string][]authorization.Call{"allowed": c.Allowed, "denied": c.Denied} { // any order: independent calls
				for _, call := range calls {
					// The client's proxy learns a little later that the port requires mutual TLS.
					// Until then it uses its open connections, one for each thread, and each of
					// these may serve one more response, so the result must be repeated.
					row := 0
					d.eventually(t, fmt.Sprintf("%s: %s", call, want), func() bool {
						before := d.server.stat(`.*rbac\.` + want)
						if d.call(call) == want && (call.Port != "http" || d.server.stat(`.*rbac\.`+want) > before) {
							row++
						} else {
							row = 0
						}
						return row == 3
					})
				}
			}
		})
	}
}

// Authorization cannot be bypassed by a forged address, identity or path, or by a connection that the proxy handles
// differently: with a late request, with bytes instead of a request, or opened before the proxy's start.
func TestNoWayAroundAuthorization(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	server := netip.AddrPortFrom(d.server.v4, 8080)
	only := func(of mesh.Attribute, value string) mesh.Part {
		rule := mesh.AuthorizationRule{From: [][]mesh.Condition{{{Of: of, Values: []string{value}}}}}
		return &mesh.AuthorizationSpec{Name: "only", Namespace: namespace, Selector: map[string]string{"app": "server"}, Rules: []mesh.AuthorizationRule{rule}}
	}
	t.Run("the address in a header", func(t *testing.T) {
		d.policies(t, only(mesh.SourceIP, "10.9.9.9"))
		for _, header := range []http.Header{{"X-Forwarded-For": {"10.9.9.9"}}, {"Forwarded": {"for=10.9.9.9"}}, {"X-Envoy-External-Address": {"10.9.9.9"}}, {"X-Real-Ip": {"10.9.9.9"}}} {
			d.eventually(t, fmt.Sprint(header), func() bool { return d.plain.request("GET", "http://"+server.String()+"/", "", header) == "denied" })
		}
	})
	t.Run("the identity in a header", func(t *testing.T) {
		d.policies(t, only(mesh.Principal, "*"))
		d.eventually(t, "denied", func() bool {
			return d.plain.request("GET", "http://"+server.String()+"/", "", http.Header{"X-Forwarded-Client-Cert": {"By=spiffe://cluster.local/ns/shop/sa/server;URI=spiffe://cluster.local/ns/shop/sa/client"}}) == "denied"
		})
	})
	t.Run("another spelling of a path", func(t *testing.T) {
		d.policies(t, &mesh.AuthorizationSpec{Name: "only", Namespace: namespace, Selector: map[string]string{"app": "server"}, Deny: true, Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: mesh.Path, Values: []string{"/admin"}}}}}}})
		for _, path := range []string{"/admin", "/admin?x", "/x/../admin", "/./admin", "/%61dmin", `/x\..\admin`} {
			d.eventually(t, path, func() bool {
				return d.plain.send(server.String(), "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r") == "HTTP/1.1 403 Forbidden"
			})
		}
	})
	t.Run("one of 1,000 hosts, or a path of the longest expression", func(t *testing.T) {
		var hosts []string
		for i := range 1000 {
			hosts = append(hosts, fmt.Sprintf("tenant-%d.customers.shop.example", i))
		}
		longest := []mesh.Condition{{Of: mesh.Path, Values: []string{strings.Repeat("/;", 512)}, NotValues: []string{strings.Repeat("/{*}", 256)}}}
		d.policies(t, &mesh.AuthorizationSpec{Name: "only", Namespace: namespace, Selector: map[string]string{"app": "server"}, Deny: true, Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: mesh.HostName, Values: hosts}}, longest}}}})
		for host, want := range map[string]string{hosts[0]: "denied", hosts[999] + ":8080": "denied", "shop.example": "allowed"} { // any order: independent calls
			d.becomes(t, host, want, func() string { return d.plain.request("GET", "http://"+server.String()+"/", host, nil) })
		}
	})
	t.Run("a request that comes late", func(t *testing.T) {
		d.policies(t, only(mesh.SourceIP, d.plain.v4.String()))
		d.becomes(t, "from the address that is allowed", "HTTP/1.0 200 OK", func() string { return d.late(t, d.plain, server) })
		d.policies(t, only(mesh.SourceIP, "10.9.9.9"))
		d.becomes(t, "from another", "HTTP/1.0 403 Forbidden", func() string { return d.late(t, d.plain, server) })
	})
	t.Run("requests in other forms", d.raw)
	t.Run("bytes at a port of requests", func(t *testing.T) {
		d.policies(t, only(mesh.Principal, "*"))
		if got := d.plain.send(server.String(), "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"); got == "server" || strings.Contains(got, "200") {
			t.Errorf("%q", got)
		}
	})
	t.Run("connections from before the proxy", func(t *testing.T) {
		early := func(to netip.AddrPort, line string) string {
			var c net.Conn
			var err error
			d.server.As(proxyUser, proxyUser, func() { c, err = net.Dial("tcp", "127.0.0.1:15016") })
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(proxyHeader(to)) // a PROXY header that claims the source address 10.1.1.1
			return exchange(c, line)
		}
		bytes, request := netip.AddrPortFrom(d.server.v4, 6379), "GET / HTTP/1.0\r\n\r"
		d.policies(t, only(mesh.SourceIP, "10.1.1.1"))
		d.becomes(t, "bytes from the address that is allowed", "server PING", func() string { return early(bytes, "PING") })
		d.becomes(t, "a request from the address that is allowed", "HTTP/1.0 200 OK", func() string { return early(server, request) })
		d.policies(t, only(mesh.SourceIP, "127.0.0.0/8")) // allow only the agent's addresses
		d.becomes(t, "bytes from another address", closed, func() string { return early(bytes, "PING") })
		d.becomes(t, "a request from another address", "HTTP/1.0 403 Forbidden", func() string { return early(server, request) })
	})
}

// late connects, and sends a request only after the server's proxy has stopped waiting for first bytes.
func (d *door) late(t *testing.T, from *pod, to netip.AddrPort) string {
	t.Helper()
	before := d.server.stalls()
	c, err := from.dial(context.Background(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d.eventually(t, "a connection that is silent for long", func() bool { return d.server.stalls() > before })
	return exchange(c, "GET / HTTP/1.0\r\n\r")
}
