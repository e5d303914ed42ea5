//go:build linux

package nftables

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// unknown is the verb of a rule that another program wrote.
const unknown capture.Verb = "unknown"

// model is the inverse of compile. It guesses each condition and the action from the values in the
// expressions, and accepts a guess if compile makes the same expressions from it. A rule that
// compile cannot have made gets the verb unknown, with its expressions as the name.
func model(exprs []*expression) (r capture.Rule, packets uint64) {
	d := decompiler{rest: exprs}
	for _, f := range []capture.Families{capture.IPv4, capture.IPv6} {
		if d.accept(family(f), nil) {
			r.Family = f
			break
		}
	}
	for {
		if c := d.first(); c.name == "counter" {
			packets = c.number(unix.NFTA_COUNTER_PACKETS)
			d.rest = d.rest[1:]
			break
		}
		m, ok := d.match(r.Family)
		if !ok {
			return unknownRule(exprs), counted(exprs)
		}
		r.Match = append(r.Match, m)
	}
	var ok bool
	if r.Action, ok = d.action(); !ok {
		return unknownRule(exprs), packets
	}
	return r, packets
}

func unknownRule(exprs []*expression) capture.Rule {
	var words []string
	for _, e := range exprs {
		words = append(words, e.String())
	}
	return capture.Rule{Action: capture.Action{Verb: unknown, Name: strings.Join(words, " ")}}
}

// counted returns the packets of the first counter.
func counted(exprs []*expression) uint64 {
	return find("counter", exprs).number(unix.NFTA_COUNTER_PACKETS)
}

type decompiler struct{ rest []*expression }

// first returns the next expression, or an empty one if none is left.
func (d *decompiler) first() *expression {
	if len(d.rest) == 0 {
		return &expression{}
	}
	return d.rest[0]
}

// accept consumes the next expressions if compile made the same ones from a guess.
func (d *decompiler) accept(guess []*expression, err error) bool {
	if err != nil || len(guess) > len(d.rest) {
		return false
	}
	for i, e := range guess {
		if *d.rest[i] != *e {
			return false
		}
	}
	d.rest = d.rest[len(guess):]
	return true
}

// find returns the first expression with a name; if there is none, an empty one.
func find(name string, exprs []*expression) *expression {
	for _, e := range exprs {
		if e.name == name {
			return e
		}
	}
	return &expression{}
}

// match consumes the expressions of one condition.
func (d *decompiler) match(f capture.Families) (capture.Match, bool) {
	for m := range d.guesses() {
		if d.accept(compileMatch(m, inKernel)) {
			return m, true
		}
	}
	return d.address(f)
}

// guesses yields the conditions that the next expressions may represent. SYN begins like a
// condition on the protocol.
func (d *decompiler) guesses() iter.Seq[capture.Match] {
	return func(yield func(capture.Match) bool) {
		either := func(key capture.Key) bool {
			return yield(capture.Match{Key: key}) && yield(capture.Match{Key: key, Not: true})
		}
		if len(d.rest) > 2 && !either(capture.SYN) {
			return
		}
		for _, m := range d.looked() {
			if !yield(m) {
				return
			}
		}
		_ = either(capture.Original) && either(capture.Invalid) && either(capture.Socket)
	}
}

// looked returns the guesses that fit the values of the next comparison or look-up.
func (d *decompiler) looked() (out []capture.Match) {
	for _, e := range d.rest {
		switch e.name {
		case "lookup":
			m := capture.Match{Key: capture.InSet, Not: e.number(unix.NFTA_LOOKUP_FLAGS) != 0, Name: e.values[unix.NFTA_LOOKUP_SET]}
			for _, key := range capture.SetKeys() {
				m.Num = uint32(key)
				out = append(out, m)
			}
			return out
		case "cmp":
			return compared(e)
		}
	}
	return nil
}

func negated(c *expression) bool { return c.number(unix.NFTA_CMP_OP) == unix.NFT_CMP_NEQ }

// compared returns the conditions that a comparison may represent, according to the length of its
// value.
func compared(c *expression) (out []capture.Match) {
	m, value := capture.Match{Not: negated(c)}, []byte(c.values[unix.NFTA_CMP_DATA])
	var keys []capture.Key
	switch len(value) {
	case 0: // the kernel has no such comparison
		return nil
	case 1:
		m.Num = uint32(value[0])
		keys = []capture.Key{capture.Protocol}
	case 2:
		m.Num = uint32(binary.BigEndian.Uint16(value))
		keys = []capture.Key{capture.SourcePort, capture.DestPort}
	case 4:
		m.Num = binary.NativeEndian.Uint32(value)
		keys = []capture.Key{capture.UID, capture.GID, capture.Mark, capture.ConnMark}
	case unix.IFNAMSIZ:
		m.Name = strings.TrimRight(string(value), "\x00")
		keys = []capture.Key{capture.InInterface, capture.OutInterface}
	}
	for _, m.Key = range keys {
		out = append(out, m)
	}
	if len(value) < unix.IFNAMSIZ {
		m.Name, m.Num = string(value)+"+", 0
		for _, m.Key = range []capture.Key{capture.InInterface, capture.OutInterface} {
			out = append(out, m)
		}
	}
	return out
}

// address consumes a condition on an address. It reads the mask itself, because nft uses no mask if
// a prefix ends at a byte boundary: it then compares only the bytes of the prefix.
func (d *decompiler) address(f capture.Families) (capture.Match, bool) {
	size := uint32(net.IPv4len)
	if f == capture.IPv6 {
		size = net.IPv6len
	}
	p := d.first()
	if f == 0 || p.name != "payload" {
		return capture.Match{}, false
	}
	length := uint32(p.number(unix.NFTA_PAYLOAD_LEN))
	if length == 0 || length > size {
		return capture.Match{}, false
	}
	m := capture.Match{Key: capture.Source}
	if p.number(unix.NFTA_PAYLOAD_OFFSET) == uint64(sourceOffset(size)+size) {
		m.Key = capture.Destination
	}
	c := find("cmp", d.rest)
	value := []byte(c.values[unix.NFTA_CMP_DATA])
	if len(value) != int(length) {
		return capture.Match{}, false
	}
	m.Not = negated(c)
	bits := int(length) * 8
	if b := d.rest[1]; b.name == "bitwise" && length == size {
		bits, _ = net.IPMask(b.values[unix.NFTA_BITWISE_MASK]).Size()
	}
	addr, _ := netip.AddrFromSlice(append(bytes.Clone(value), make([]byte, size-length)...))
	m.Prefix = netip.PrefixFrom(addr, bits)
	if length < size {
		whole := address(m)[0]
		whole.values[unix.NFTA_PAYLOAD_LEN] = num(length)
		return m, d.accept([]*expression{whole, compare(m.Not, value)}, nil)
	}
	return m, d.accept(address(m), nil)
}

// action consumes the expressions after the counter.
func (d *decompiler) action() (capture.Action, bool) {
	for _, a := range d.actionGuesses() {
		if d.accept(compileAction(a, inKernel)) {
			return a, len(d.rest) == 0
		}
	}
	return capture.Action{}, false
}

// actionGuesses returns the actions that fit the values in the expressions.
func (d *decompiler) actionGuesses() []capture.Action {
	out := []capture.Action{{Verb: capture.Return}, {Verb: capture.Drop}, {Verb: capture.Reject}}
	var port, zone, mark uint32
	for _, e := range d.rest {
		value := []byte(e.values[unix.NFTA_IMMEDIATE_DATA])
		switch {
		case e.name == verdict:
			out = append(out, capture.Action{Verb: capture.Goto, Name: string(value[sizes[number]:])})
		case e.name == "dynset":
			for _, verb := range slices.Sorted(maps.Keys(setOps)) {
				for _, key := range capture.SetKeys() {
					if uint64(setOps[verb]) == e.number(unix.NFTA_DYNSET_OP) {
						out = append(out, capture.Action{Verb: verb, Name: e.values[unix.NFTA_DYNSET_SET_NAME], Num: uint32(key)})
					}
				}
			}
		case e.name == "immediate" && len(value) == 2:
			port = uint32(binary.BigEndian.Uint16(value))
			zone = uint32(binary.NativeEndian.Uint16(value))
		case e.name == "immediate" && len(value) == 4:
			mark = binary.NativeEndian.Uint32(value)
		}
	}
	return append(out,
		capture.Action{Verb: capture.Redirect, Num: port},
		capture.Action{Verb: capture.Zone, Num: zone},
		capture.Action{Verb: capture.TProxy, Num: port, Mark: mark},
		capture.Action{Verb: capture.SetMark, Mark: mark},
		capture.Action{Verb: capture.SetConnMark, Mark: mark})
}
