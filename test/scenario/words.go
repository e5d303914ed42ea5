package scenario

import (
	"net/netip"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

// An owner is the user and the group of a process.
type owner struct{ uid, gid uint32 }

var (
	app   = owner{1000, 1000}
	proxy = owner{1337, 1337}
	root  = owner{0, 0}
	other = owner{2000, 2000}
)

// Destinations, named as in the scenarios' names.
const (
	service    = "10.96.0.10:80" // in the mesh
	service6   = "[fd96::10]:80"
	elsewhere  = "172.16.0.10:80" // outside the mesh
	service9k  = "10.96.0.10:9000"
	service9k6 = "[fd96::10]:9000"
	own        = "10.9.0.2:8080" // the pod's own address, after translation from a service address
	own6       = "[fd09::2]:8080"
	loop       = "127.0.0.1:8080"
	loop6      = "[::1]:8080"
	loopOther  = "127.0.0.2:8080"
	guestWeb   = "10.10.0.1:80"
	proofIn    = "127.0.0.6:15002" // destinations of the agent's inbound proofs
	proofIn6   = "[::6]:15002"
)

const (
	peer, peer6   = "10.9.0.1", "fd09::1"
	guest, guest6 = "10.10.0.1", "fd10::1"
	clientPort    = 40000
)

// always lists the app's listeners, which every pod except empty has.
var always = []trace.Listener{
	{Proto: capture.TCP, Port: 8080},
	{Proto: capture.TCP, Port: 8081},
	{Proto: capture.UDP, Port: 9053},
}

var (
	empty = trace.Pod{}                  // without listeners
	early = trace.Pod{Listeners: always} // the app runs, and the proxy does not run yet
	ready = with(early,
		trace.Listener{Proto: capture.TCP, Port: 15001},
		trace.Listener{Proto: capture.TCP, Port: 15006, Transparent: true},
		trace.Listener{Proto: capture.TCP, Port: 15008},
		trace.Listener{Proto: capture.TCP, Port: 15020},
		trace.Listener{Proto: capture.TCP, Port: 15021},
		trace.Listener{Proto: capture.TCP, Port: 15053},
		trace.Listener{Proto: capture.UDP, Port: 15053},
		trace.Listener{Proto: capture.TCP, Port: 15090},
	)
)

// with returns a pod with more listeners.
func with(p trace.Pod, more ...trace.Listener) trace.Pod {
	p.Listeners = append(p.Listeners[:len(p.Listeners):len(p.Listeners)], more...)
	return p
}

// on returns a TCP listener.
func on(port uint16) trace.Listener { return trace.Listener{Proto: capture.TCP, Port: port} }

// remembering returns p in which the rules remember that listeners are absent, by entries in these sets.
func remembering(p trace.Pod, sets ...string) trace.Pod {
	p.Remembered = sets
	return p
}

// tcp returns a connection that a process of the pod opens.
func tcp(by owner, to string) trace.Conn {
	dst := netip.MustParseAddrPort(to)
	src, out := routeTo(dst.Addr())
	return trace.Conn{
		Proto: capture.TCP, Src: netip.AddrPortFrom(src, clientPort), Dst: dst,
		Out: out, UID: by.uid, GID: by.gid,
	}
}

func udp(by owner, to string) trace.Conn { return overUDP(tcp(by, to)) }

func overUDP(c trace.Conn) trace.Conn {
	c.Proto = capture.UDP
	return c
}

// routes are the pod's routes; the first match counts.
var routes = []struct{ dst, src, out string }{
	{"127.0.0.1/32", "127.0.0.1", "lo"},
	{"127.0.0.0/8", "127.0.0.1", "lo"},
	{"::1/128", "::1", "lo"},
	{"::6/128", "::6", "lo"},
	{"10.9.0.2/32", "10.9.0.2", "lo"},
	{"fd09::2/128", "fd09::2", "lo"},
	{"10.10.0.2/32", "10.10.0.2", "lo"},
	{"fd10::2/128", "fd10::2", "lo"},
	{"10.10.0.0/24", "10.10.0.2", "virt0"},
	{"fd10::/64", "fd10::2", "virt0"},
	{"0.0.0.0/0", "10.9.0.2", "eth0"},
	{"::/0", "fd09::2", "eth0"},
}

func routeTo(dst netip.Addr) (src netip.Addr, out string) {
	for _, r := range routes {
		if netip.MustParsePrefix(r.dst).Contains(dst) {
			return netip.MustParseAddr(r.src), r.out
		}
	}
	panic("no route to " + dst.String())
}

// inFrom returns an inbound TCP connection on an interface.
func inFrom(iface, addr4, addr6, to string) trace.Conn {
	c := tcp(owner{}, to)
	src := netip.MustParseAddr(addr4)
	if c.Dst.Addr().Is6() {
		src = netip.MustParseAddr(addr6)
	}
	c.Src, c.In = netip.AddrPortFrom(src, clientPort), iface
	return c
}

func fromPeer(to string) trace.Conn  { return inFrom("eth0", peer, peer6, to) }
func fromGuest(to string) trace.Conn { return inFrom("virt0", guest, guest6, to) }

// bound returns c with another source address.
func bound(c trace.Conn, src string) trace.Conn {
	c.Src = netip.AddrPortFrom(netip.MustParseAddr(src), clientPort)
	return c
}

func marked(c trace.Conn, mark uint32) trace.Conn {
	c.Mark = mark
	return c
}

// older returns c as a connection that was established before the rules were written.
func older(c trace.Conn) trace.Conn {
	c.Established = true
	return c
}

var passes = Want{Fate: trace.Passes}

func lands(port uint16) Want   { return Want{trace.Redirected, port} }
func taken(port uint16) Want   { return Want{trace.Taken, port} }
func waits(port uint16) Want   { return Want{trace.Parked, port} }
func refused(port uint16) Want { return Want{trace.Refused, port} }
func dropped(port uint16) Want { return Want{trace.Dropped, port} }

// when makes a scenario. The flags are separated by spaces; an empty value is "-i=".
func when(name, flags string, c trace.Conn, pod trace.Pod, want Want) Scenario {
	if want.Fate == trace.Passes {
		want.Port = c.Dst.Port()
	}
	return Scenario{Name: name, Flags: strings.Fields(flags), Conn: c, Pod: pod, Want: want}
}

// onIPTables returns s with a different expected result for the iptables backend.
func (s Scenario) onIPTables(want Want) Scenario {
	s.OnIPTables = &want
	return s
}
