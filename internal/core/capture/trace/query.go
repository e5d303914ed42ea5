package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
)

// A Query describes one connection by the flags of a command line.
type Query struct {
	To        string   // ADDRESS:PORT
	From      string   // source address; empty: chosen as the kernel would choose it
	As        string   // UID or UID:GID of the process that opens it
	In        string   // interface on which it enters the pod; empty: a process of the pod opens it
	Out       string   // interface by which it leaves the pod; empty: by the route
	UDP       bool     // the connection is UDP, not TCP
	Local     []string // addresses of the pod; empty: those in the Network
	Listening []string // local ports that have a listener
}

// A Network contains the interfaces and addresses on which a connection's path depends besides the
// rules. The zero value means that they are not known.
type Network struct {
	Addrs []netip.Addr // of the pod, without loopback
	// Out returns the interface by which packets to an address leave.
	Out func(netip.Addr) (string, error)
}

// Network returns n. If q contains addresses of the pod, it returns a network with these addresses and without
// routes instead.
func (q Query) Network(n Network) (Network, error) {
	if len(q.Local) == 0 {
		return n, nil
	}
	n = Network{}
	for _, s := range q.Local {
		a, err := parseAddr("local", s)
		if err != nil {
			return n, err
		}
		n.Addrs = append(n.Addrs, a)
	}
	return n, nil
}

// Explain follows the connection through the rules. The text starts with the assumptions that were
// made.
func (q Query) Explain(rs capture.Ruleset, n Network) (string, error) {
	c, pod, supposed, err := q.Parse(n)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range supposed {
		fmt.Fprintf(&b, "supposed: %s\n", s)
	}
	return b.String() + Follow(rs, c, pod).String(), nil
}

// Parse returns the connection, the pod around it in network n, and the assumptions about both. An
// error names the flag of "outrider rules" with the wrong value.
func (q Query) Parse(n Network) (c Conn, pod Pod, supposed []string, err error) {
	to, err := netip.ParseAddrPort(q.To)
	if err != nil || to.Port() == 0 || to.Addr().IsUnspecified() {
		return c, pod, nil, fmt.Errorf("--to=%q: write it like 10.96.0.10:80 or [fd00::1]:80", q.To)
	}
	if q.Out == "" {
		q.Out = to.Addr().Zone()
	}
	c = Conn{Proto: capture.TCP, Dst: netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())}
	if q.UDP {
		c.Proto = capture.UDP
	}
	if c.UID, c.GID, err = q.owner(); err != nil {
		return c, pod, nil, err
	}
	if c.In, c.Out, supposed, err = q.interfaces(n, c.Dst.Addr()); err != nil {
		return c, pod, nil, err
	}
	if len(n.Addrs) > 0 && len(q.Local) == 0 {
		here := fmt.Sprintf("the pod's addresses are those of this network namespace, %s (--local)", strings.Trim(fmt.Sprint(n.Addrs), "[]"))
		supposed = slices.Insert(supposed, 0, here)
	}
	src, err := q.source(c)
	if err != nil {
		return c, pod, nil, err
	}
	c.Src = netip.AddrPortFrom(src, 40000)
	if len(q.Listening) == 0 {
		supposed = append(supposed, "no port of the pod has a listener (--listening)")
	}
	for _, s := range q.Listening {
		port, err := capture.ParsePort(s)
		if err != nil {
			return c, pod, nil, fmt.Errorf("--listening: %w", err)
		}
		for _, proto := range []uint32{capture.TCP, capture.UDP} {
			pod.Listeners = append(pod.Listeners, Listener{Proto: proto, Port: port, Transparent: true})
		}
	}
	return c, pod, supposed, nil
}

func (q Query) owner() (uid, gid uint32, err error) {
	user, group, both := strings.Cut(q.As, ":")
	if !both {
		group = user
	}
	uid, okU := capture.ParseID(user)
	gid, okG := capture.ParseID(group)
	if !okU || !okG {
		return 0, 0, fmt.Errorf("--as=%q: write it like 1000 or 1000:1000", q.As)
	}
	return uid, gid, nil
}

// interfaces returns the interfaces by which the connection enters and leaves. The result in is empty if a
// process of the pod opens the connection; the result out is empty if the connection enters the pod and ends
// there.
func (q Query) interfaces(n Network, dst netip.Addr) (in, out string, supposed []string, err error) {
	own := dst.IsLoopback() || q.Out == "lo" || slices.Contains(n.Addrs, dst)
	if err := q.checkInterfaces(own, dst); err != nil {
		return "", "", nil, err
	}
	switch {
	case own && q.In != "":
		return q.In, "", nil, nil
	case own:
		return "", "lo", nil, nil
	case q.Out != "":
		return q.In, q.Out, nil, nil
	case n.Addrs == nil && q.In != "":
		return q.In, "", []string{fmt.Sprintf("%s is an address of the pod (--local)", dst)}, nil
	case n.Addrs == nil:
		supposed = append(supposed, fmt.Sprintf("%s is not an address of the pod (--local)", dst))
	}
	if n.Out != nil {
		if out, err = n.Out(dst); err == nil {
			return q.In, out, supposed, nil
		}
		supposed = append(supposed, fmt.Sprintf("there is a route to %s, which there is not here (%v)", dst, err))
	}
	return q.In, "eth0", append(supposed, "it leaves by eth0 (--out)"), nil
}

func (q Query) checkInterfaces(own bool, dst netip.Addr) error {
	for _, f := range []struct{ flag, name string }{{"in", q.In}, {"out", q.Out}} {
		if _, err := capture.ParseInterface(f.name); err != nil {
			return fmt.Errorf("--%s=%q: %w", f.flag, f.name, err)
		}
	}
	switch {
	case q.In == "lo":
		return errors.New(`--in="lo": a process of the pod makes such a connection; leave --in out`)
	case own && q.Out != "" && q.Out != "lo":
		return fmt.Errorf("--out=%q: %s is an address of the pod, and is reached by lo", q.Out, dst)
	}
	return nil
}

// source returns the source address of the connection. For a destination in the pod the kernel chooses the
// destination address itself, except that it chooses 127.0.0.1 for all of 127.0.0.0/8.
func (q Query) source(c Conn) (netip.Addr, error) {
	dst := c.Dst.Addr()
	switch {
	case q.From != "":
		src, err := parseAddr("from", q.From)
		if err == nil && src.Is4() != dst.Is4() {
			err = fmt.Errorf("--from=%q: --to=%q is of the other family", q.From, q.To)
		}
		return src, err
	case c.Out == "lo" && dst.Is4() && dst.IsLoopback():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case c.Out == "lo":
		return dst, nil
	case dst.Is4():
		return netip.IPv4Unspecified(), nil
	}
	return netip.IPv6Unspecified(), nil
}

func parseAddr(flag, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil {
		return a, fmt.Errorf("--%s=%q: not an address; write it like 10.9.0.2 or fd00::2", flag, s)
	}
	return a.Unmap().WithZone(""), nil
}
