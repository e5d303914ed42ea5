package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

// A Proof is the result of a test whether a connection in one direction is captured: the first packet of a
// connection is sent, and the counters of the rules show where it arrived.
//
// The packet carries a mark by which the rules reject it at its destination ([capture.ProofOut] and
// [capture.ProofIn]). So a proof needs no listener, takes no connection away from a listener, leaves no state
// behind, and sends nothing out of the pod.
type Proof struct {
	Direction string `json:"direction"` // "outbound" or "inbound"
	Family    string `json:"family"`    // "ipv4" or "ipv6"
	Proved    bool   `json:"proved"`
	Detail    string `json:"detail"` // what was tried, or why nothing was tried
}

func (p Proof) String() string {
	word := "not tried"
	if p.Proved {
		word = "proved"
	}
	return fmt.Sprintf("%s %s: %s: %s", p.Direction, p.Family, word, p.Detail)
}

// answerLimit bounds how long a proof waits for its rejection, which this machine sends within a
// millisecond. The limit is reached only if the packet is lost.
const answerLimit = 2 * time.Second

// rounds bounds how often a failed proof is repeated, from other source ports. A packet with the addresses and
// ports of an earlier proof would take the path of the earlier packet: connection tracking remembers a refused
// connection and its destination for 10 seconds (nf_conntrack_tcp_timeout_close), even when the rules change.
const rounds = 3

// prove tests both directions of the rule set in state, for each family that it captures. The last argument is
// a function that returns the state with fresh counters. The error names the direction that does not work. A
// direction that cannot be tested here is reported in its proof, not as an error.
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

// compare finds the packets of the attempts in the counters.
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

// failure describes the packets of a direction that were sent but not all counted.
func failure(tries []attempt, d direction, sent, arrived int) error {
	var words []string
	for _, t := range tries {
		if t.direction.name == d.name && t.sent {
			words = append(words, fmt.Sprintf("to %s as uid %d gid %d (%v)", t.conn.Dst, t.as.uid, t.as.gid, t.answer))
		}
	}
	return fmt.Errorf("proof: %s: of %d connections %d came to the proxy's port: %s", d.name, sent, arrived, strings.Join(words, ", "))
}

// An attempt is one proof: a connection and its result.
type attempt struct {
	direction direction
	family    capture.Families
	conn      trace.Conn
	as        identity
	why       error // the reason if no connection can be tried
	sent      bool
	answer    error
}

// attempts chooses the connections to try.
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

// send opens the connection, if there is one to try.
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

// unanswered reports whether the packet was lost. Then the proof is not repeated: connection tracking remembers
// only refused connections, so another source port would not help.
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

// A direction is one of the two directions of connections, outbound or inbound.
type direction struct {
	name    string
	mark    uint32
	reasons []string // reasons of the rules that count the proof's packet
	conns   func(family capture.Families) []trace.Conn
}

var directions = []direction{
	{"outbound", capture.ProofOut, []string{capture.ReasonProofOut}, outboundConns},
	{"inbound", capture.ProofIn, []string{capture.ReasonProofIn, capture.ReasonProofTP}, inboundConns},
}

// captures reports whether the rules capture any connection in a direction, which they do if they
// contain the rule that counts the proof.
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
