//go:build linux

package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// unknown is the verb of a rule that another program wrote.
const unknown capture.Verb = "unknown"

// model is the inverse of compile. It guesses each condition and the action from the values in the
// expressions, and accepts a guess if compile makes the same expressions from it. A rule that
// compile cannot have made gets the verb unknown, with its expressions as the name.
func model(exprs []any) (r capture.Rule, packets uint64) {
	d := decompiler{rest: exprs}
	for _, f := range []capture.Families{capture.IPv4, capture.IPv6} {
		if d.accept(family(f), nil) {
			r.Family = f
			break
		}
	}
	for {
		if c, ok := d.first().(*expr.Counter); ok {
			packets = c.Packets
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

func unknownRule(exprs []any) capture.Rule {
	var words []string
	for _, e := range exprs {
		words = append(words, fmt.Sprintf("%T%+v", e, e))
	}
	return capture.Rule{Action: capture.Action{Verb: unknown, Name: strings.Join(words, " ")}}
}

// counted returns the packets of the first counter.
func counted(exprs []any) uint64 {
	c, _ := find[*expr.Counter](exprs)
	if c == nil {
		return 0
	}
	return c.Packets
}

type decompiler struct{ rest []any }

func (d *decompiler) first() any {
	if len(d.rest) == 0 {
		return nil
	}
	return d.rest[0]
}

// accept consumes the next expressions if compile made the same ones from a guess.
func (d *decompiler) accept(guess []expr.Any, err error) bool {
	if err != nil || len(guess) > len(d.rest) {
		return false
	}
	for i, e := range guess {
		if !reflect.DeepEqual(d.rest[i], any(e)) {
			return false
		}
	}
	d.rest = d.rest[len(guess):]
	return true
}

// find returns the first expression of a type.
func find[T any](exprs []any) (T, bool) {
	for _, e := range exprs {
		if e, ok := e.(T); ok {
			return e, true
		}
	}
	var none T
	return none, false
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
		switch e := e.(type) {
		case *expr.Lookup:
			for _, key := range capture.SetKeys() {
				out = append(out, capture.Match{Key: capture.InSet, Not: e.Invert, Name: e.SetName, Num: uint32(key)})
			}
			return out
		case *expr.Cmp:
			return compared(e)
		}
	}
	return nil
}

// compared returns the conditions that a comparison may represent, judging by the length of its
// value.
func compared(c *expr.Cmp) (out []capture.Match) {
	m := capture.Match{Not: c.Op == expr.CmpOpNeq}
	var keys []capture.Key
	switch len(c.Data) {
	case 1:
		m.Num = uint32(c.Data[0])
		keys = []capture.Key{capture.Protocol}
	case 2:
		m.Num = uint32(binary.BigEndian.Uint16(c.Data))
		keys = []capture.Key{capture.SourcePort, capture.DestPort}
	case 4:
		m.Num = binaryutil.NativeEndian.Uint32(c.Data)
		keys = []capture.Key{capture.UID, capture.GID, capture.Mark, capture.ConnMark}
	case unix.IFNAMSIZ:
		m.Name = strings.TrimRight(string(c.Data), "\x00")
		keys = []capture.Key{capture.InInterface, capture.OutInterface}
	}
	for _, m.Key = range keys {
		out = append(out, m)
	}
	if len(c.Data) < unix.IFNAMSIZ {
		m.Name, m.Num = string(c.Data)+"+", 0
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
	p, ok := d.first().(*expr.Payload)
	if f == 0 || !ok || p.Base != expr.PayloadBaseNetworkHeader || p.Len == 0 || p.Len > size {
		return capture.Match{}, false
	}
	m := capture.Match{Key: capture.Source}
	if p.Offset == sourceOffset(size)+size {
		m.Key = capture.Destination
	}
	c, ok := find[*expr.Cmp](d.rest)
	if !ok || len(c.Data) != int(p.Len) {
		return capture.Match{}, false
	}
	m.Not = c.Op == expr.CmpOpNeq
	bits := int(p.Len) * 8
	if b, ok := d.rest[1].(*expr.Bitwise); ok && p.Len == size {
		bits, _ = net.IPMask(b.Mask).Size()
	}
	addr, _ := netip.AddrFromSlice(append(bytes.Clone(c.Data), make([]byte, size-p.Len)...))
	m.Prefix = netip.PrefixFrom(addr, bits)
	if p.Len < size {
		return m, d.accept([]expr.Any{p, compare(m.Not, c.Data)}, nil) && address(m)[0].(*expr.Payload).Offset == p.Offset
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
		switch e := e.(type) {
		case *expr.Verdict:
			out = append(out, capture.Action{Verb: capture.Goto, Name: e.Chain})
		case *expr.Dynset:
			for _, verb := range slices.Sorted(maps.Keys(setOps)) {
				op := setOps[verb]
				for _, key := range capture.SetKeys() {
					if op == e.Operation {
						out = append(out, capture.Action{Verb: verb, Name: e.SetName, Num: uint32(key)})
					}
				}
			}
		case *expr.Immediate:
			switch len(e.Data) {
			case 2:
				port = uint32(binary.BigEndian.Uint16(e.Data))
				zone = uint32(binaryutil.NativeEndian.Uint16(e.Data))
			case 4:
				mark = binaryutil.NativeEndian.Uint32(e.Data)
			}
		}
	}
	return append(out,
		capture.Action{Verb: capture.Redirect, Num: port},
		capture.Action{Verb: capture.Zone, Num: zone},
		capture.Action{Verb: capture.TProxy, Num: port, Mark: mark},
		capture.Action{Verb: capture.SetMark, Mark: mark},
		capture.Action{Verb: capture.SetConnMark, Mark: mark})
}
