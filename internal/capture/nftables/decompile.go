package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// unknown is the verb of a rule that another program wrote.
const unknown capture.Verb = "unknown"

// model is the inverse of compile. A rule that compile cannot have made gets the verb
// unknown, with its expressions as the name.
func model(exprs []any) (r capture.Rule, packets uint64) {
	d := decompiler{rest: exprs}
	for len(d.rest) > 0 && !d.failed {
		if c, ok := take[*expr.Counter](&d); ok {
			packets, d.counted = c.Packets, true
			continue
		}
		if d.counted {
			d.action()
		} else {
			d.match()
		}
	}
	if d.failed || !d.counted || d.rule.Action.Verb == "" {
		var words []string
		for _, e := range exprs {
			words = append(words, fmt.Sprintf("%T%+v", e, e))
		}
		return capture.Rule{Action: capture.Action{Verb: unknown, Name: strings.Join(words, " ")}}, packets
	}
	return d.rule, packets
}

type decompiler struct {
	rest    []any
	rule    capture.Rule
	counted bool
	failed  bool
}

// take returns the next expression if it is a T.
func take[T any](d *decompiler) (T, bool) {
	var zero T
	if len(d.rest) == 0 {
		return zero, false
	}
	e, ok := d.rest[0].(T)
	if ok {
		d.rest = d.rest[1:]
	}
	return e, ok
}

func (d *decompiler) fail() { d.failed = true }

// cmp takes a comparison for equality with length bytes.
func (d *decompiler) cmp(length int) (data []byte, not bool) {
	c, ok := take[*expr.Cmp](d)
	if !ok || c.Register != reg || len(c.Data) != length || c.Op != expr.CmpOpEq && c.Op != expr.CmpOpNeq {
		d.fail()
		return make([]byte, length), false
	}
	return c.Data, c.Op == expr.CmpOpNeq
}

func (d *decompiler) add(m capture.Match) { d.rule.Match = append(d.rule.Match, m) }

func (d *decompiler) match() {
	if m, ok := take[*expr.Meta](d); ok {
		d.meta(m)
		return
	}
	if p, ok := take[*expr.Payload](d); ok {
		d.payload(p)
		return
	}
	if c, ok := take[*expr.Ct](d); ok {
		d.ct(c)
		return
	}
	if s, ok := take[*expr.Socket](d); ok {
		c, ok := take[*expr.Cmp](d)
		if !ok || s.Key != expr.SocketKeyTransparent || c.Op != expr.CmpOpLte || !bytes.Equal(c.Data, []byte{1}) {
			d.fail()
		}
		d.add(capture.Match{Key: capture.Socket})
		return
	}
	d.fail()
}

var numbered = map[expr.MetaKey]capture.Key{
	expr.MetaKeySKUID: capture.UID, expr.MetaKeySKGID: capture.GID, expr.MetaKeyMARK: capture.Mark,
}

func (d *decompiler) meta(m *expr.Meta) {
	if m.SourceRegister {
		d.fail()
		return
	}
	switch m.Key {
	case expr.MetaKeyNFPROTO:
		d.nfproto()
	case expr.MetaKeyL4PROTO:
		d.protocol()
	case expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME:
		data, not := d.cmp(unix.IFNAMSIZ)
		key := capture.InInterface
		if m.Key == expr.MetaKeyOIFNAME {
			key = capture.OutInterface
		}
		d.add(capture.Match{Key: key, Not: not, Name: strings.TrimRight(string(data), "\x00")})
	default:
		key, ok := numbered[m.Key]
		if !ok {
			d.fail()
			return
		}
		data, not := d.cmp(4)
		d.add(capture.Match{Key: key, Not: not, Num: binaryutil.NativeEndian.Uint32(data)})
	}
}

// nfproto is the rule's family, or the key of a set.
func (d *decompiler) nfproto() {
	if l, ok := take[*expr.Lookup](d); ok {
		d.add(capture.Match{Key: capture.InSet, Not: l.Invert, Name: l.SetName, Num: uint32(capture.ByFamily)})
		return
	}
	data, not := d.cmp(1)
	switch {
	case not || d.rule.Family != 0 || len(d.rule.Match) > 0:
		d.fail()
	case data[0] == unix.NFPROTO_IPV4:
		d.rule.Family = capture.IPv4
	case data[0] == unix.NFPROTO_IPV6:
		d.rule.Family = capture.IPv6
	default:
		d.fail()
	}
}

// protocol is a match of its own, unless it belongs to SYN.
func (d *decompiler) protocol() {
	data, not := d.cmp(1)
	if len(d.rest) > 0 && !not && data[0] == unix.IPPROTO_TCP {
		if p, ok := d.rest[0].(*expr.Payload); ok && p.Offset == tcpFlagsOffset {
			return // SYN follows, and implies it
		}
	}
	d.add(capture.Match{Key: capture.Protocol, Not: not, Num: uint32(data[0])})
}

func (d *decompiler) payload(p *expr.Payload) {
	switch {
	case p.OperationType != expr.PayloadLoad || p.DestRegister != reg:
		d.fail()
	case p.Base == expr.PayloadBaseNetworkHeader:
		d.address(p)
	case p.Base != expr.PayloadBaseTransportHeader:
		d.fail()
	case p.Offset == tcpFlagsOffset && p.Len == 1:
		if m := d.mask(1); !bytes.Equal(m, []byte{tcpFlagsMask}) {
			d.fail()
		}
		data, not := d.cmp(1)
		if data[0] != tcpFlagSYN {
			d.fail()
		}
		d.add(capture.Match{Key: capture.SYN, Not: not})
	case p.Offset == 2 && p.Len == 2:
		if l, ok := take[*expr.Lookup](d); ok {
			d.add(capture.Match{Key: capture.InSet, Not: l.Invert, Name: l.SetName, Num: uint32(capture.ByPort)})
			return
		}
		d.port(capture.DestPort)
	case p.Offset == 0 && p.Len == 2:
		d.port(capture.SourcePort)
	default:
		d.fail()
	}
}

func (d *decompiler) port(key capture.Key) {
	data, not := d.cmp(2)
	d.add(capture.Match{Key: key, Not: not, Num: uint32(binary.BigEndian.Uint16(data))})
}

// mask takes a bitwise AND with length bytes; nil if there is none.
func (d *decompiler) mask(length int) []byte {
	b, ok := take[*expr.Bitwise](d)
	if !ok {
		return nil
	}
	if len(b.Mask) != length || !bytes.Equal(b.Xor, make([]byte, length)) {
		d.fail()
		return nil
	}
	return b.Mask
}

func (d *decompiler) address(p *expr.Payload) {
	size := uint32(net.IPv4len)
	if d.rule.Family == capture.IPv6 {
		size = net.IPv6len
	}
	key := capture.Source
	switch first := sourceOffset(size); {
	case d.rule.Family == 0 || p.Len == 0 || p.Len > size:
		d.fail()
		return
	case p.Offset == first+size:
		key = capture.Destination
	case p.Offset != first:
		d.fail()
		return
	}
	m := d.mask(int(p.Len))
	data, not := d.cmp(int(p.Len))
	if p.Len < size && m == nil { // nft compares whole bytes of a prefix without a mask
		m = net.CIDRMask(int(p.Len)*8, int(size)*8)
		data = append(bytes.Clone(data), make([]byte, size-p.Len)...)
	}
	prefix, ok := prefixOf(data, m)
	if !ok {
		d.fail()
	}
	d.add(capture.Match{Key: key, Not: not, Prefix: prefix})
}

func (d *decompiler) ct(c *expr.Ct) {
	switch {
	case c.SourceRegister:
		d.fail()
	case c.Key == expr.CtKeyMARK:
		data, not := d.cmp(4)
		d.add(capture.Match{Key: capture.ConnMark, Not: not, Num: binaryutil.NativeEndian.Uint32(data)})
	case c.Key == expr.CtKeyDIRECTION:
		data, not := d.cmp(1)
		if data[0] != 0 {
			d.fail()
		}
		d.add(capture.Match{Key: capture.Original, Not: not})
	case c.Key == expr.CtKeySTATE:
		m := d.mask(4)
		data, not := d.cmp(4)
		if !bytes.Equal(m, host32(expr.CtStateBitINVALID)) || !bytes.Equal(data, host32(0)) {
			d.fail()
		}
		d.add(capture.Match{Key: capture.Invalid, Not: !not})
	default:
		d.fail()
	}
}

// action reads what follows the counter.
func (d *decompiler) action() {
	if d.rule.Action.Verb != "" {
		d.fail()
		return
	}
	if v, ok := take[*expr.Verdict](d); ok {
		d.verdict(v)
		return
	}
	if r, ok := take[*expr.Reject](d); ok && r.Type == unix.NFT_REJECT_TCP_RST {
		d.rule.Action = capture.Action{Verb: capture.Reject}
		return
	}
	if imm, ok := take[*expr.Immediate](d); ok {
		d.immediate(imm.Data)
		return
	}
	d.dynset()
}

func (d *decompiler) verdict(v *expr.Verdict) {
	switch v.Kind {
	case expr.VerdictReturn:
		d.rule.Action = capture.Action{Verb: capture.Return}
	case expr.VerdictDrop:
		d.rule.Action = capture.Action{Verb: capture.Drop}
	case expr.VerdictGoto:
		d.rule.Action = capture.Action{Verb: capture.Goto, Name: v.Chain}
	default:
		d.fail()
	}
}

// immediate reads the actions that take a number.
func (d *decompiler) immediate(data []byte) {
	if r, ok := take[*expr.Redir](d); ok && len(data) == 2 && r.RegisterProtoMin == reg {
		d.rule.Action = capture.Action{Verb: capture.Redirect, Num: uint32(binary.BigEndian.Uint16(data))}
		return
	}
	if t, ok := take[tproxy](d); ok && len(data) == 2 && t.regPort == reg {
		d.tproxy(uint32(binary.BigEndian.Uint16(data)))
		return
	}
	if c, ok := take[*expr.Ct](d); ok && c.SourceRegister {
		d.setCt(c, data)
		return
	}
	if m, ok := take[*expr.Meta](d); ok && m.SourceRegister && m.Key == expr.MetaKeyMARK && len(data) == 4 {
		d.rule.Action = capture.Action{Verb: capture.SetMark, Mark: binaryutil.NativeEndian.Uint32(data)}
		return
	}
	d.fail()
}

func (d *decompiler) setCt(c *expr.Ct, data []byte) {
	switch {
	case c.Key == expr.CtKeyMARK && len(data) == 4:
		d.rule.Action = capture.Action{Verb: capture.SetConnMark, Mark: binaryutil.NativeEndian.Uint32(data)}
	case c.Key == expr.CtKeyZONE && len(data) == 2:
		d.rule.Action = capture.Action{Verb: capture.Zone, Num: uint32(binaryutil.NativeEndian.Uint16(data))}
		if v, ok := take[*expr.Verdict](d); !ok || v.Kind != expr.VerdictReturn {
			d.fail()
		}
	default:
		d.fail()
	}
}

// tproxy reads the mark and the verdict that go with it.
func (d *decompiler) tproxy(port uint32) {
	imm, ok := take[*expr.Immediate](d)
	m, ok2 := take[*expr.Meta](d)
	v, ok3 := take[*expr.Verdict](d)
	if !ok || !ok2 || !ok3 || len(imm.Data) != 4 || !m.SourceRegister || m.Key != expr.MetaKeyMARK || v.Kind != expr.VerdictAccept {
		d.fail()
		return
	}
	d.rule.Action = capture.Action{Verb: capture.TProxy, Num: port, Mark: binaryutil.NativeEndian.Uint32(imm.Data)}
}

// dynset reads the key and the operation on a set.
func (d *decompiler) dynset() {
	key := capture.ByFamily
	if p, ok := take[*expr.Payload](d); ok && p.Base == expr.PayloadBaseTransportHeader && p.Offset == 2 && p.Len == 2 {
		key = capture.ByPort
	} else if m, ok := take[*expr.Meta](d); !ok || m.Key != expr.MetaKeyNFPROTO || m.SourceRegister {
		d.fail()
		return
	}
	s, ok := take[*expr.Dynset](d)
	if !ok {
		d.fail()
		return
	}
	for verb, op := range setOps {
		if op == s.Operation {
			d.rule.Action = capture.Action{Verb: verb, Name: s.SetName, Num: uint32(key)}
			return
		}
	}
	d.fail()
}
