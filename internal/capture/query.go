package capture

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Query describes one connection as a command line does.
type Query struct {
	To        string // ADDRESS:PORT
	As        string // UID or UID:GID of the process that makes it
	In        string // interface on which it enters the pod; empty: a process of the pod makes it
	UDP       bool
	Listening []string // local ports that have a listener
}

// Parse returns the connection and the pod around it. An error names the flag of
// "outrider rules" with the wrong value.
func (q Query) Parse() (Conn, Pod, error) {
	dst, err := netip.ParseAddrPort(q.To)
	if err != nil {
		return Conn{}, Pod{}, fmt.Errorf("--to=%q: write it like 10.96.0.10:80 or [fd00::1]:80", q.To)
	}
	c := Conn{Proto: TCP, Dst: dst, In: q.In, Out: "eth0"}
	if q.UDP {
		c.Proto = UDP
	}
	src := netip.IPv4Unspecified()
	if dst.Addr().Is6() {
		src = netip.IPv6Unspecified()
	}
	switch {
	case dst.Addr().IsLoopback():
		src, c.Out = dst.Addr(), "lo"
	case q.In != "":
		c.Out = ""
	}
	c.Src = netip.AddrPortFrom(src, 40000)
	uid, gid, both := strings.Cut(q.As, ":")
	if !both {
		gid = uid
	}
	u, errU := strconv.ParseUint(uid, 10, 32)
	g, errG := strconv.ParseUint(gid, 10, 32)
	if errU != nil || errG != nil {
		return Conn{}, Pod{}, fmt.Errorf("--as=%q: write it like 1000 or 1000:1000", q.As)
	}
	c.UID, c.GID = uint32(u), uint32(g)
	var pod Pod
	for _, s := range q.Listening {
		port, err := ParsePort(s)
		if err != nil {
			return Conn{}, Pod{}, fmt.Errorf("--listening: %w", err)
		}
		for _, proto := range []uint32{TCP, UDP} {
			pod.Listeners = append(pod.Listeners, Listener{Proto: proto, Port: port, Transparent: true})
		}
	}
	return c, pod, nil
}
