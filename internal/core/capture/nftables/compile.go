//go:build linux

package nftables

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// reg is the register that every expression uses. The second part of a key of two parts is in the
// four bytes after the first.
const (
	reg     = unix.NFT_REG_1
	regNext = unix.NFT_REG32_01
)

// Offsets and bits in packets:
const (
	tcpFlagsOffset = 13
	tcpFlagsMask   = 0x17 // FIN, SYN, RST, ACK
	tcpFlagSYN     = 0x02
)

var hooks = map[capture.Hook]uint32{
	capture.Prerouting: unix.NF_INET_PRE_ROUTING,
	capture.Input:      unix.NF_INET_LOCAL_IN,
	capture.Output:     unix.NF_INET_LOCAL_OUT,
}

// typeComment is NFTNL_UDATA_RULE_COMMENT of libnftnl's udata.h.
const typeComment = 0

// comment returns a rule's reason in the form that nft shows: type, length, text and a NUL.
func comment(reason string) []byte {
	return append(append([]byte{typeComment, byte(len(reason) + 1)}, reason...), 0)
}

// setIDs maps names of sets to numbers. The kernel recognises a set that is created in the same
// transaction by its number.
type setIDs map[string]uint32

// inKernel is used for rules that are read back: any name is a set, with the number 0.
var inKernel setIDs

func (s setIDs) number(name string) (uint32, error) {
	id, ok := s[name]
	if !ok && s != nil {
		return 0, fmt.Errorf("there is no set %q", name)
	}
	return id, nil
}

// compile turns a rule into expressions of nf_tables: conditions, counter, action.
func compile(r capture.Rule, sets setIDs) ([]expr.Any, error) {
	var out []expr.Any
	if r.Family != 0 {
		out = append(out, family(r.Family)...)
	}
	for _, m := range r.Match {
		e, err := compileMatch(m, sets)
		if err != nil {
			return nil, err
		}
		out = append(out, e...)
	}
	action, err := compileAction(r.Action, sets)
	if err != nil {
		return nil, err
	}
	out = append(out, &expr.Counter{})
	return append(out, action...), nil
}

// family returns the condition that a packet has this family.
func family(f capture.Families) []expr.Any {
	return []expr.Any{meta(expr.MetaKeyNFPROTO), compare(false, []byte{protocolOf(f)})}
}

// protocolOf returns the kernel's number of a family.
func protocolOf(f capture.Families) byte {
	if f == capture.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func meta(key expr.MetaKey) *expr.Meta { return &expr.Meta{Key: key, Register: reg} }

func compare(not bool, data []byte) *expr.Cmp {
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	return &expr.Cmp{Op: op, Register: reg, Data: data}
}

func transport(offset, length uint32) *expr.Payload {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
}

func host32(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

func port(n uint32) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// ifname returns a name in the form that the kernel compares: all 16 bytes, or only those of a
// prefix.
func ifname(name string) []byte {
	if prefix, ok := strings.CutSuffix(name, "+"); ok {
		return []byte(prefix)
	}
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func mask(bytes, value []byte) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: uint32(len(bytes)), Mask: bytes, Xor: value}
}

// key loads the packet's key for a set.
func key(k capture.SetKey) []expr.Any {
	switch k {
	case capture.ByFamilyPort:
		port := transport(2, 2)
		port.DestRegister = regNext
		return []expr.Any{meta(expr.MetaKeyNFPROTO), port}
	case capture.ByPort:
		return []expr.Any{transport(2, 2)}
	case capture.ByUID:
		return []expr.Any{meta(expr.MetaKeySKUID)}
	case capture.ByGID:
		return []expr.Any{meta(expr.MetaKeySKGID)}
	case capture.BySource4:
		return []expr.Any{network(capture.Source, net.IPv4len)}
	case capture.BySource6:
		return []expr.Any{network(capture.Source, net.IPv6len)}
	case capture.ByDestination4:
		return []expr.Any{network(capture.Destination, net.IPv4len)}
	case capture.ByDestination6:
		return []expr.Any{network(capture.Destination, net.IPv6len)}
	}
	return []expr.Any{meta(expr.MetaKeyNFPROTO)}
}

// network loads an address of length bytes.
func network(side capture.Key, length uint32) *expr.Payload {
	offset := sourceOffset(length)
	if side == capture.Destination {
		offset += length
	}
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

// compileMatch turns a condition into expressions.
//
// complexity: one case for each key.
func compileMatch(m capture.Match, sets setIDs) ([]expr.Any, error) {
	switch m.Key {
	case capture.Protocol:
		return []expr.Any{meta(expr.MetaKeyL4PROTO), compare(m.Not, []byte{byte(m.Num)})}, nil
	case capture.SYN:
		return []expr.Any{meta(expr.MetaKeyL4PROTO), compare(false, []byte{unix.IPPROTO_TCP}),
			transport(tcpFlagsOffset, 1), mask([]byte{tcpFlagsMask}, []byte{0}), compare(m.Not, []byte{tcpFlagSYN})}, nil
	case capture.InInterface:
		return []expr.Any{meta(expr.MetaKeyIIFNAME), compare(m.Not, ifname(m.Name))}, nil
	case capture.OutInterface:
		return []expr.Any{meta(expr.MetaKeyOIFNAME), compare(m.Not, ifname(m.Name))}, nil
	case capture.Source, capture.Destination:
		return address(m), nil
	case capture.SourcePort:
		return []expr.Any{transport(0, 2), compare(m.Not, port(m.Num))}, nil
	case capture.DestPort:
		if m.Last != 0 {
			return nil, fmt.Errorf("a range of ports, %s, is a set here", m)
		}
		return []expr.Any{transport(2, 2), compare(m.Not, port(m.Num))}, nil
	case capture.UID:
		return []expr.Any{meta(expr.MetaKeySKUID), compare(m.Not, host32(m.Num))}, nil
	case capture.GID:
		return []expr.Any{meta(expr.MetaKeySKGID), compare(m.Not, host32(m.Num))}, nil
	case capture.Mark:
		return []expr.Any{meta(expr.MetaKeyMARK), compare(m.Not, host32(m.Num))}, nil
	case capture.ConnMark:
		return []expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: reg}, compare(m.Not, host32(m.Num))}, nil
	case capture.Original:
		return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg}, compare(m.Not, []byte{0})}, nil
	case capture.Invalid:
		return []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: reg},
			mask(host32(expr.CtStateBitINVALID), host32(0)), compare(!m.Not, host32(0))}, nil
	case capture.Socket:
		if m.Not { // without a socket the expression itself does not match, whatever follows
			return nil, fmt.Errorf("nftables cannot match the absence of a socket")
		}
		return []expr.Any{&expr.Socket{Key: expr.SocketKeyTransparent, Register: reg},
			&expr.Cmp{Op: expr.CmpOpLte, Register: reg, Data: []byte{1}}}, nil
	case capture.InSet:
		id, err := sets.number(m.Name)
		if err != nil {
			return nil, err
		}
		return append(key(capture.SetKey(m.Num)), &expr.Lookup{SourceRegister: reg, SetName: m.Name, SetID: id, Invert: m.Not}), nil
	}
	return nil, fmt.Errorf("nftables cannot match %q", m.Key)
}

// sourceOffset returns the offset of the source address in a header whose addresses have this
// length in bytes. The destination follows it.
func sourceOffset(length uint32) uint32 {
	if length == net.IPv6len {
		return 8
	}
	return 12
}

// address compares a source or destination with a prefix.
func address(m capture.Match) []expr.Any {
	length := uint32(m.Prefix.Addr().BitLen() / 8)
	out := []expr.Any{network(m.Key, length)}
	if bits := m.Prefix.Bits(); bits < m.Prefix.Addr().BitLen() {
		out = append(out, mask(net.CIDRMask(bits, int(length)*8), make([]byte, length)))
	}
	return append(out, compare(m.Not, m.Prefix.Masked().Addr().AsSlice()))
}

func verdict(kind expr.VerdictKind, chain string) *expr.Verdict {
	return &expr.Verdict{Kind: kind, Chain: chain}
}

func immediate(data []byte) *expr.Immediate { return &expr.Immediate{Register: reg, Data: data} }

// setOps are the dynset operations (linux/netfilter/nf_tables.h, enum nft_dynset_ops).
var setOps = map[capture.Verb]uint32{capture.Add: 0, capture.Update: 1, capture.Delete: 2}

func compileAction(a capture.Action, sets setIDs) ([]expr.Any, error) {
	switch a.Verb {
	case capture.Return:
		return []expr.Any{verdict(expr.VerdictReturn, "")}, nil
	case capture.Drop:
		return []expr.Any{verdict(expr.VerdictDrop, "")}, nil
	case capture.Goto:
		return []expr.Any{verdict(expr.VerdictGoto, a.Name)}, nil
	case capture.Reject:
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}, nil
	case capture.Redirect:
		return []expr.Any{immediate(port(a.Num)), &expr.Redir{RegisterProtoMin: reg, RegisterProtoMax: reg, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}}, nil
	case capture.TProxy:
		return []expr.Any{
			immediate(port(a.Num)), &expr.TProxy{Family: unix.NFPROTO_UNSPEC, RegPort: reg},
			immediate(host32(a.Mark)), &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg},
			verdict(expr.VerdictAccept, ""),
		}, nil
	case capture.Zone:
		return []expr.Any{
			immediate(binaryutil.NativeEndian.PutUint16(uint16(a.Num))),
			&expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: reg}, verdict(expr.VerdictReturn, ""),
		}, nil
	case capture.SetMark:
		return []expr.Any{immediate(host32(a.Mark)), &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg}}, nil
	case capture.SetConnMark:
		return []expr.Any{immediate(host32(a.Mark)), &expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: reg}}, nil
	case capture.Add, capture.Update, capture.Delete:
		id, err := sets.number(a.Name)
		if err != nil {
			return nil, err
		}
		return append(key(capture.SetKey(a.Num)), &expr.Dynset{SrcRegKey: reg, SetName: a.Name, SetID: id, Operation: setOps[a.Verb]}), nil
	}
	return nil, fmt.Errorf("nftables cannot do %q", a.Verb)
}
