package status

import (
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/base/contract"
)

// A place is the location of a client relative to the pod. Only the address of the client's connection
// determines it, because headers can be forged.
type place int

// The kubelet's place is onNode.
const (
	outside place = iota
	onNode
	inside // in the pod: by the loopback interface or the unix socket
	places
)

// An access is the set of clients that may call a path.
type access int

const (
	anyone   access = iota
	scrapers        // Options.MetricsFrom, the node and the pod
	node            // the node and the pod
	probers         // clients that know Probes.Key, and the pod; if there is no key, the node too
	pod             // any user of the pod, over the loopback interface
)

// An endpoint is a path with its method and its access.
type endpoint struct {
	method, path string
	who          access
	serve        http.HandlerFunc // nil: the endpoint does not exist
}

// endpoints lists all endpoints; docs/agent.md describes them.
func (s *Server) endpoints() []endpoint {
	out := []endpoint{
		{"GET", contract.ReadyPath, anyone, s.ready}, // on the readiness port, the only one for other pods
		{"GET", "/metrics", scrapers, s.metrics},
		{"GET", "/stats/prometheus", scrapers, s.metrics},
		{"GET", "/metrics/agent", scrapers, s.agentMetrics},
		{"GET", "/startup", node, s.startup},
		{"GET", contract.ProbePath, probers, s.o.Probes.serve},
		{"GET", contract.HookPath, probers, s.o.Probes.serve},
		{"GET", "/debug/goroutines", pod, goroutines},
	}
	if s.o.Drain != nil {
		out = append(out, endpoint{"POST", "/drain", pod, s.drain},
			endpoint{"GET", contract.StopPath, probers, s.stops}, endpoint{"GET", contract.StopPath + "/", probers, s.stops}) // a path may end with the key
	}
	if s.o.Replace != nil {
		out = append(out, endpoint{"POST", "/replace", pod, s.replace})
	}
	if s.o.Quit != nil {
		out = append(out, endpoint{"POST", "/quitquitquit", pod, s.quit})
	}
	return out
}

// handler serves the endpoints. It checks who calls before it looks at the method.
func (s *Server) handler() http.Handler {
	paths, methods := http.NewServeMux(), http.NewServeMux()
	for _, e := range s.endpoints() {
		methods.HandleFunc(e.method+" "+e.path, e.serve)
		paths.HandleFunc(e.path, func(w http.ResponseWriter, r *http.Request) {
			if why := s.forbidden(e.who, peerFrom(r), r); why != "" {
				http.Error(w, why, http.StatusForbidden)
				return
			}
			methods.ServeHTTP(w, r)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := peerFrom(r)
		if p.place != inside {
			// One request per connection: so the limit on connections also bounds a client that
			// sends requests without waiting for answers. The kubelet makes a connection for each
			// probe anyway.
			w.Header().Set("Connection", "close")
		}
		switch {
		case r.URL.Path == contract.ReadyPath:
		case p.otherUser:
			http.Error(w, "on this socket other users may only get "+contract.ReadyPath, http.StatusForbidden)
			return
		case p.port == s.readiness() && p.place != inside:
			// A Service may publish this port, for a load balancer's health checks. Then clients from
			// outside the cluster can have the node's address.
			http.Error(w, "on this port only "+contract.ReadyPath, http.StatusForbidden)
			return
		}
		paths.ServeHTTP(w, r)
	})
}

// readiness returns the readiness port, the second of the ports; 0 if there is only one.
func (s *Server) readiness() uint16 {
	if len(s.o.Ports) < 2 {
		return 0
	}
	return s.o.Ports[1]
}

// forbidden returns the reason why a client may not call a path; empty if it may.
func (s *Server) forbidden(who access, p peer, r *http.Request) string {
	if p.place == inside {
		return ""
	}
	switch who {
	case anyone:
		return ""
	case scrapers:
		if p.place == onNode || s.o.MetricsFrom == nil || contains(s.o.MetricsFrom, p.address) {
			return ""
		}
		return "only from the pod, its node and the networks of OUTRIDER_METRICS_FROM"
	case node:
		if p.place == onNode {
			return ""
		}
		return "only from the pod and its node; kubectl port-forward is from the pod"
	case probers:
		return s.notAProber(p, r.URL.Path)
	}
	return "only from within the pod, by the loopback interface"
}

// notAProber returns the reason why a client may not request a probe or a hook; empty if it may.
func (s *Server) notAProber(p peer, path string) string {
	path, key := s.o.Probes.split(path)
	switch {
	case s.o.Probes.Key == "" && p.place == onNode,
		s.o.Probes.Key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(s.o.Probes.Key)) == 1:
		return ""
	case s.o.Probes.Key != "":
		return "only for the kubelet: the path must end with the key of this pod's probes"
	}
	if s.refused.first(p.name) {
		s.o.Log.Warn("probe refused: it is not from the node", "client", p.name, "path", path,
			"node", fmt.Sprint(s.o.Node), "hint", "if this is the kubelet: inject with --probe-key, or name its network in OUTRIDER_PROBE_FROM")
	}
	return "only from the pod and its node, whose addresses are " + fmt.Sprint(s.o.Node) + "; OUTRIDER_PROBE_FROM adds others"
}

// A firsts remembers the first names that it gets, so that each is logged once. It ignores later ones, so that
// many names do not fill the log.
type firsts struct {
	mu    sync.Mutex
	names []string
}

// mostFirsts bounds the names. A refused kubelet is likely to be among the first.
const mostFirsts = 16

func (f *firsts) first(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.names) >= mostFirsts || slices.Contains(f.names, name) {
		return false
	}
	f.names = append(f.names, name)
	return true
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

func (s *Server) placeOf(a netip.Addr) place {
	switch {
	case a.IsLoopback():
		return inside
	case contains(s.o.Node, a):
		return onNode
	}
	return outside
}

// Gateways returns the next hops of this network namespace's default routes, as networks of one
// address. If the pod's link is a bridge or point-to-point, the next hop is the node's address on
// that link. The kubelet's connections come from it, but the API does not list it among the
// node's addresses.
func Gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, table := range []struct {
		file  string
		parse func(line string) (netip.Addr, bool)
	}{{"route", gateway4}, {"ipv6_route", gateway6}} {
		raw, err := os.ReadFile("/proc/thread-self/net/" + table.file)
		if err != nil {
			continue // the IP family is switched off
		}
		for line := range strings.Lines(string(raw)) {
			if a, ok := table.parse(line); ok {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return out
}

// gateway4 parses a line of /proc/net/route: interface, destination, gateway, flags, 3
// counters, mask. Addresses are hexadecimal words in the machine's byte order.
func gateway4(line string) (netip.Addr, bool) {
	f := strings.Fields(line)
	if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
		return netip.Addr{}, false
	}
	raw, err := hex.DecodeString(f[2])
	if err != nil || len(raw) != 4 {
		return netip.Addr{}, false
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], binary.BigEndian.Uint32(raw))
	a := netip.AddrFrom4(b)
	return a, !a.IsUnspecified()
}

// gateway6 parses a line of /proc/net/ipv6_route: destination, its prefix length, source, its
// prefix length, next hop. Addresses are in network byte order.
func gateway6(line string) (netip.Addr, bool) {
	f := strings.Fields(line)
	if len(f) < 5 || f[1] != "00" || strings.Trim(f[0], "0") != "" {
		return netip.Addr{}, false
	}
	raw, err := hex.DecodeString(f[4])
	if err != nil || len(raw) != 16 {
		return netip.Addr{}, false
	}
	a := netip.AddrFrom16([16]byte(raw))
	return a, !a.IsUnspecified()
}

// A peer is the client of a connection.
type peer struct {
	place     place
	otherUser bool       // on the unix socket, with another uid than the agent's
	name      string     // for the journal
	address   netip.Addr // zero: the unix socket
	port      uint16     // the agent's port to which the client is connected
}

// peerOf identifies the client of a connection.
func (s *Server) peerOf(c net.Conn) peer {
	if u, ok := c.(*net.UnixConn); ok {
		cred, err := credentials(u)
		if err != nil {
			return peer{place: inside, otherUser: true, name: "unix socket"}
		}
		own := cred.Uid == 0 || int(cred.Uid) == os.Getuid()
		return peer{place: inside, otherUser: !own, name: fmt.Sprintf("uid %d pid %d", cred.Uid, cred.Pid)}
	}
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	local, also := c.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return peer{name: c.RemoteAddr().String()}
	}
	a := remote.AddrPort().Addr().Unmap().WithZone("")
	return peer{place: s.placeOf(a), name: a.String(), address: a, port: uint16(local.Port)}
}
