package setup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/contract"
)

// A Proof is the result of sending the first packet of a connection in one direction
// and finding in the counters of the rules where it went.
//
// The packet carries a mark by which the rules reject it at its destination
// ([capture.ProofOut] and [capture.ProofIn]). So a proof needs no listener, takes no
// connection away from one, leaves no state behind, and never leaves the pod.
type Proof struct {
	Direction string `json:"direction"` // "outbound" or "inbound"
	Family    string `json:"family"`    // "ipv4" or "ipv6"
	Proved    bool   `json:"proved"`
	Detail    string `json:"detail"` // what was tried, or why nothing was
}

func (p Proof) String() string {
	word := "not tried"
	if p.Proved {
		word = "proved"
	}
	return fmt.Sprintf("%s %s: %s: %s", p.Direction, p.Family, word, p.Detail)
}

// answerLimit bounds how long a proof waits for its rejection. It comes from this
// machine within a millisecond; only where the packet is lost is the limit reached.
const answerLimit = 2 * time.Second

// rounds bounds how often a failed proof is repeated from other source ports. A
// packet with the addresses and ports of an earlier proof takes the way of that one:
// connection tracking remembers a refused connection and its destination for 10
// seconds (nf_conntrack_tcp_timeout_close), also under new rules.
const rounds = 3

// prove tries both directions of the rule set in state, in each family that it
// captures. read returns the state with fresh counters. The error names the
// direction that does not work; what cannot be tried here is in the proofs, not an error.
func prove(ctx context.Context, state capture.State, read func() (capture.State, error)) ([]Proof, error) {
	var open sockets
	defer open.close()
	for round := 1; ; round++ {
		tries := attempts(state.Ruleset)
		for i := range tries {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			tries[i].send(&open)
		}
		after, err := read()
		if err != nil {
			return nil, fmt.Errorf("reading the counters after the proof: %w", err)
		}
		proofs, err := compare(tries, state, after)
		if err == nil || round == rounds || slices.ContainsFunc(tries, attempt.unanswered) {
			return proofs, err
		}
		state = after
	}
}

// compare finds the packets of the tries in the counters.
func compare(tries []attempt, state, after capture.State) ([]Proof, error) {
	var proofs []Proof
	for _, d := range directions {
		sent, arrived := 0, int(count(after, d)-count(state, d))
		for _, t := range tries {
			if t.direction.name != d.name {
				continue
			}
			proofs = append(proofs, t.proof())
			if t.sent {
				sent++
			}
		}
		if arrived < sent {
			return proofs, failure(tries, d, sent, arrived)
		}
	}
	return proofs, nil
}

// failure lists the packets of a direction that were sent and not all counted.
func failure(tries []attempt, d direction, sent, arrived int) error {
	var words []string
	for _, t := range tries {
		if t.direction.name == d.name && t.sent {
			words = append(words, fmt.Sprintf("to %s as uid %d gid %d (%v)", t.conn.Dst, t.as.uid, t.as.gid, t.answer))
		}
	}
	return fmt.Errorf("proof: %s: of %d connections %d came to the proxy's port: %s", d.name, sent, arrived, strings.Join(words, ", "))
}

// An attempt is one proof: a connection, and what came of it.
type attempt struct {
	direction direction
	family    capture.Families
	conn      capture.Conn
	as        identity
	why       error // why there is nothing to try
	sent      bool
	answer    error
}

// attempts chooses what to try.
func attempts(rs capture.Ruleset) []attempt {
	var out []attempt
	for _, d := range directions {
		for _, family := range []capture.Families{capture.IPv4, capture.IPv6} {
			if rs.Families.Has(family) && captures(rs, d) {
				t := attempt{direction: d, family: family}
				t.conn, t.as, t.why = choose(rs, d, family)
				out = append(out, t)
			}
		}
	}
	return out
}

// send makes the connection, if there is one to make.
func (t *attempt) send(open *sockets) {
	if t.why != nil {
		return
	}
	t.answer = connect(t.conn, t.direction.mark, t.as, open)
	switch {
	case isAny(t.answer, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT):
		t.why = fmt.Errorf("no route to %s (%w)", t.conn.Dst, t.answer)
	case errors.Is(t.answer, unix.EPERM) && t.as != own():
		t.why = fmt.Errorf("uid %d gid %d is not captured, and may not act as another (SETUID, SETGID)", own().uid, own().gid)
	default:
		t.sent = true
	}
}

// unanswered reports whether the packet was lost: connection tracking remembers only
// what was refused.
func (t attempt) unanswered() bool { return errors.Is(t.answer, unix.EINPROGRESS) }

func (t *attempt) proof() Proof {
	p := Proof{Direction: t.direction.name, Family: t.family.String()}
	if t.why != nil {
		p.Detail = t.why.Error()
		return p
	}
	p.Proved, p.Detail = true, fmt.Sprintf("%s as uid %d", t.conn.Dst, t.as.uid)
	return p
}

// A direction is one way of connections into the proxy.
type direction struct {
	name    string
	mark    uint32
	reasons []string // of the rules where it ends
	conns   func(family capture.Families) []capture.Conn
}

var directions = []direction{
	{"outbound", capture.ProofOut, []string{capture.ReasonProofOut}, outboundConns},
	{"inbound", capture.ProofIn, []string{capture.ReasonProofIn, capture.ReasonProofTP}, inboundConns},
}

// captures reports whether the rules capture any connection in a direction: whether
// they have the rule where its proof ends.
func captures(rs capture.Ruleset, d direction) bool {
	return anyRule(rs, func(r capture.Rule) bool { return slices.Contains(d.reasons, r.Reason) })
}

func count(s capture.State, d direction) uint64 {
	var n uint64
	for _, reason := range d.reasons {
		n += s.Count(reason)
	}
	return n
}

// An identity is the owner of the socket that sends the packet.
type identity struct{ uid, gid int }

func own() identity { return identity{unix.Geteuid(), unix.Getegid()} }

// choose finds, by tracing the rules, a connection and an identity to open it with
// that end in the rule that counts the proof. The error is the reason why there is none.
func choose(rs capture.Ruleset, d direction, family capture.Families) (capture.Conn, identity, error) {
	why := errors.New("nothing that is captured can be tried here")
	ids := []identity{own(), {65534, 65534}, {own().uid, 65534}, {own().uid, 0}, {65534, own().gid}, {0, 0}}
	ids = append(ids, ownersNamed(rs)...)
	find := func(target capture.Conn) (identity, bool) {
		for _, id := range ids {
			c := target
			c.UID, c.GID, c.Mark = uint32(id.uid), uint32(id.gid), d.mark
			if proves(rs.Trace(c, capture.Pod{}), d) {
				return id, true
			}
		}
		return identity{}, false
	}
	routes := 0
	for _, conn := range d.conns(family) {
		for _, target := range targets(rs, conn) {
			id, ok := find(target)
			if !ok {
				continue
			}
			if target.Out == "lo" {
				return target, id, nil
			}
			// The rules may leave an interface alone; looking for the route is what takes time.
			if routes++; routes > maxRoutes {
				return capture.Conn{}, identity{}, why
			}
			out, err := interfaceTo(target.Dst.Addr())
			if err != nil {
				why = fmt.Errorf("no route to %s: %w", target.Dst.Addr(), err)
				continue
			}
			target.Out = out
			if id, ok := find(target); ok {
				return target, id, nil
			}
		}
	}
	return capture.Conn{}, identity{}, why
}

// maxRoutes bounds for how many destinations a route is looked up. Most pods have one route
// for all of them.
const maxRoutes = 64

// proves reports whether a connection ends where the proof is counted because the
// rules led it there, not because it was sent there.
func proves(t capture.Trace, d direction) bool {
	redirected := false
	for _, step := range t.Steps {
		redirected = redirected || step.Rule.Action.Verb == capture.Redirect
		switch step.Rule.Reason {
		case capture.ReasonProofTP:
			return true
		case d.reasons[0]:
			return redirected
		}
	}
	return false
}

// interfaceTo is the interface by which packets to addr leave.
func interfaceTo(addr netip.Addr) (string, error) {
	r, err := openRouter()
	if err != nil {
		return "", err
	}
	defer r.Close()
	return r.interfaceTo(addr)
}

// ownersNamed are identities of the groups that the rules name: where only those
// groups are captured, others prove nothing.
func ownersNamed(rs capture.Ruleset) []identity {
	var out []identity
	add := func(group uint32) { out = append(out, identity{own().uid, int(group)}, identity{65534, int(group)}) }
	for m := range conditions(rs) {
		switch {
		case m.Not && m.Key == capture.GID:
			add(m.Num)
		case m.Not && m.Key == capture.InSet && capture.SetKey(m.Num) == capture.ByGID && rs.Set(m.Name) != nil:
			for _, groups := range rs.Set(m.Name).Numbers {
				add(groups.First)
			}
		}
	}
	return out
}

// conditions yields every condition of the rules, with its rule.
func conditions(rs capture.Ruleset) iter.Seq2[capture.Match, capture.Rule] {
	return func(yield func(capture.Match, capture.Rule) bool) {
		for _, c := range rs.Chains {
			for _, r := range c.Rules {
				for _, m := range r.Match {
					if !yield(m, r) {
						return
					}
				}
			}
		}
	}
}

// maxSample bounds how many elements of one list are tried. All are captured alike unless
// another list has them too.
const maxSample = 16

// targets are conn, and then conn with destinations at the ends of lists in the rules: the
// first of what is captured, and the one after what is left alone.
func targets(rs capture.Ruleset, conn capture.Conn) []capture.Conn {
	out := []capture.Conn{conn}
	add := func(dst netip.AddrPort) {
		c := conn
		c.Dst = dst
		out = append(out, c)
	}
	addr, port := conn.Dst.Addr(), conn.Dst.Port()
	seen := map[capture.Match]bool{}
	for m, r := range conditions(rs) {
		if m.Not || seen[m] {
			continue
		}
		seen[m] = true
		numbers, addresses := destinations(rs, m)
		leave := r.Action.Verb == capture.Return
		for _, i := range sample(numbers) {
			n := i.First
			if leave {
				n = i.Last + 1
			}
			if n > 0 && n < 1<<16 {
				add(netip.AddrPortFrom(addr, uint16(n)))
			}
		}
		for _, i := range sample(addresses) {
			ends := []netip.Addr{i.First, i.First.Next()}
			if leave {
				ends = []netip.Addr{i.Last.Next()}
			}
			for _, a := range ends {
				if conn.Out != "lo" && a.IsValid() && a.Is4() == addr.Is4() && !a.IsLoopback() {
					add(netip.AddrPortFrom(a, port))
				}
			}
		}
	}
	return out
}

// destinations are the ports or the addresses that meet a condition.
func destinations(rs capture.Ruleset, m capture.Match) ([]capture.Interval[uint32], []capture.Interval[netip.Addr]) {
	switch m.Key {
	case capture.DestPort:
		return []capture.Interval[uint32]{m.Range()}, nil
	case capture.Destination:
		return nil, []capture.Interval[netip.Addr]{capture.Range(m.Prefix)}
	case capture.InSet:
		s := rs.Set(m.Name)
		switch k := capture.SetKey(m.Num); {
		case s == nil || !s.Constant():
		case k == capture.ByPort || k == capture.ByDestination4 || k == capture.ByDestination6:
			return s.Numbers, s.Addresses
		}
	}
	return nil, nil
}

// sample is a list, or some of it if it is long.
func sample[T any](list []T) []T {
	if len(list) <= maxSample {
		return list
	}
	var out []T
	for i := range maxSample {
		out = append(out, list[i*len(list)/maxSample])
	}
	return out
}

// outboundConns go to addresses that no host has (RFC 5737, RFC 3849), for rules that
// capture every address.
func outboundConns(family capture.Families) []capture.Conn {
	dst := contract.ProofOutbound
	if family == capture.IPv6 {
		dst = contract.ProofOutbound6
	}
	return []capture.Conn{tcp(dst, "")}
}

// inboundConns go to addresses of the pod. Transparent proxying leaves 127.0.0.1 alone.
func inboundConns(family capture.Families) []capture.Conn {
	dsts := []string{"127.0.0.1", "127.0.0.2"}
	if family == capture.IPv6 {
		dsts = []string{"::1"}
	}
	var out []capture.Conn
	for _, dst := range dsts {
		out = append(out, tcp(dst, "lo"))
	}
	for _, a := range localAddresses() {
		if a.Is4() == (family == capture.IPv4) && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			out = append(out, tcp(a.String(), "lo"))
		}
	}
	return out
}

func tcp(dst, out string) capture.Conn {
	addr := netip.MustParseAddr(dst)
	src := addr
	if out != "lo" {
		src = netip.IPv6Unspecified()
		if addr.Is4() {
			src = netip.IPv4Unspecified()
		}
	}
	return capture.Conn{Proto: capture.TCP, Src: netip.AddrPortFrom(src, 40000), Dst: netip.AddrPortFrom(addr, contract.ProbePort), Out: out}
}

// connect opens a connection with a mark, as an identity. Its error is the answer: a
// proof is always rejected.
func connect(c capture.Conn, mark uint32, as identity, open *sockets) error {
	if as == own() {
		return dial(c.Dst, mark, open)
	}
	done := make(chan error, 1)
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	go func() {
		// File system ids belong to the thread, which ends with this goroutine. A socket
		// keeps those of the thread that made it, and the owner matches look at them.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
			if err := become(as); err != nil {
				return err
			}
			return dial(c.Dst, mark, open)
		}()
	}()
	return <-done
}

// become sets the thread's file system ids. The system call reports no failure; asking
// for an impossible id gives the present one.
func become(as identity) error {
	unix.Setfsgid(as.gid)
	unix.Setfsuid(as.uid)
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != as.uid || gid != as.gid {
		return unix.EPERM
	}
	return nil
}

// sockets are those of a proof. They stay open until its end, so that each has
// another source port.
type sockets []int

func (s *sockets) close() {
	for _, fd := range *s {
		unix.Close(fd)
	}
}

// open returns a socket that is bound to source.
func (s *sockets) open(source unix.Sockaddr) (int, error) {
	family := unix.AF_INET6
	if _, ok := source.(*unix.SockaddrInet4); ok {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return 0, err
	}
	*s = append(*s, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, source)
}

func dial(to netip.AddrPort, mark uint32, open *sockets) error {
	source, addr := unix.Sockaddr(&unix.SockaddrInet6{}), unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		source, addr = &unix.SockaddrInet4{}, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	// A refused connection releases a port that the kernel chose. The first socket,
	// which connects nowhere, keeps it.
	holder, err := open.open(source)
	if err != nil {
		return err
	}
	if source, err = unix.Getsockname(holder); err != nil {
		return err
	}
	fd, err := open.open(source)
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fmt.Errorf("marking a socket: %w (it takes the capability NET_ADMIN)", err)
	}
	if err := unix.Connect(fd, addr); err != nil {
		return err
	}
	return errors.New("accepted by a listener")
}
