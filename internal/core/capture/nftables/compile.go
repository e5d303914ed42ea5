//go:build linux

package nftables

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"

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

// Numbers of the kernel that package unix does not name (linux/netfilter.h, nf_tables.h,
// nf_conntrack_common.h):
const (
	nfDrop            = 0
	nfAccept          = 1
	socketTransparent = 0
	ctStateInvalid    = 1
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

// setIDs maps names of sets to numbers. If a set is created in the same transaction, the kernel
// recognises it by its number.
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
func compile(r capture.Rule, sets setIDs) ([]*expression, error) {
	var out []*expression
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
	out = append(out, &expression{name: "counter"})
	return append(out, action...), nil
}

// family returns the condition that a packet has this family.
func family(f capture.Families) []*expression {
	return []*expression{meta(unix.NFT_META_NFPROTO), compare(false, []byte{protocolOf(f)})}
}

// protocolOf returns the kernel's number of a family.
func protocolOf(f capture.Families) byte {
	if f == capture.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func meta(key uint32) *expression {
	return &expression{"meta", values{unix.NFTA_META_KEY: num(key), unix.NFTA_META_DREG: num(reg)}}
}

func setMeta(key uint32) *expression {
	return &expression{"meta", values{unix.NFTA_META_KEY: num(key), unix.NFTA_META_SREG: num(reg)}}
}

func ct(key uint32) *expression {
	return &expression{"ct", values{unix.NFTA_CT_KEY: num(key), unix.NFTA_CT_DREG: num(reg)}}
}

func setCt(key uint32) *expression {
	return &expression{"ct", values{unix.NFTA_CT_KEY: num(key), unix.NFTA_CT_SREG: num(reg)}}
}

func compare(not bool, data []byte) *expression {
	op := uint32(unix.NFT_CMP_EQ)
	if not {
		op = unix.NFT_CMP_NEQ
	}
	return compareBy(op, data)
}

func compareBy(op uint32, data []byte) *expression {
	return &expression{"cmp", values{unix.NFTA_CMP_SREG: num(reg), unix.NFTA_CMP_OP: num(op), unix.NFTA_CMP_DATA: string(data)}}
}

func transport(offset, length uint32) *expression {
	return load(reg, unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset, length)
}

// load loads a part of a packet's header.
func load(register, base, offset, length uint32) *expression {
	return &expression{"payload", values{unix.NFTA_PAYLOAD_DREG: num(register), unix.NFTA_PAYLOAD_BASE: num(base),
		unix.NFTA_PAYLOAD_OFFSET: num(offset), unix.NFTA_PAYLOAD_LEN: num(length)}}
}

func host32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func port(n uint32) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// ifname returns an interface's name in the form that the kernel compares: all 16 bytes, or only
// those of a prefix.
func ifname(name string) []byte {
	if prefix, ok := strings.CutSuffix(name, "+"); ok {
		return []byte(prefix)
	}
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func mask(bytes, value []byte) *expression {
	return &expression{"bitwise", values{unix.NFTA_BITWISE_SREG: num(reg), unix.NFTA_BITWISE_DREG: num(reg),
		unix.NFTA_BITWISE_LEN: num(len(bytes)), unix.NFTA_BITWISE_MASK: string(bytes), unix.NFTA_BITWISE_XOR: string(value)}}
}

// key loads the packet's key for a set.
func key(k capture.SetKey) []*expression {
	switch k {
	case capture.ByFamilyPort:
		return []*expression{meta(unix.NFT_META_NFPROTO), load(regNext, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)}
	case capture.ByPort:
		return []*expression{transport(2, 2)}
	case capture.ByUID:
		return []*expression{meta(unix.NFT_META_SKUID)}
	case capture.ByGID:
		return []*expression{meta(unix.NFT_META_SKGID)}
	case capture.BySource4:
		return []*expression{network(capture.Source, net.IPv4len)}
	case capture.BySource6:
		return []*expression{network(capture.Source, net.IPv6len)}
	case capture.ByDestination4:
		return []*expression{network(capture.Destination, net.IPv4len)}
	case capture.ByDestination6:
		return []*expression{network(capture.Destination, net.IPv6len)}
	}
	return []*expression{meta(unix.NFT_META_NFPROTO)}
}

// network loads an address of length bytes.
func network(side capture.Key, length uint32) *expression {
	offset := sourceOffset(length)
	if side == capture.Destination {
		offset += length
	}
	return load(reg, unix.NFT_PAYLOAD_NETWORK_HEADER, offset, length)
}

// compileMatch turns a condition into expressions.
//
// complexity: one case for each key.
func compileMatch(m capture.Match, sets setIDs) ([]*expression, error) {
	switch m.Key {
	case capture.Protocol:
		return []*expression{meta(unix.NFT_META_L4PROTO), compare(m.Not, []byte{byte(m.Num)})}, nil
	case capture.SYN:
		return []*expression{meta(unix.NFT_META_L4PROTO), compare(false, []byte{unix.IPPROTO_TCP}),
			transport(tcpFlagsOffset, 1), mask([]byte{tcpFlagsMask}, []byte{0}), compare(m.Not, []byte{tcpFlagSYN})}, nil
	case capture.InInterface:
		return []*expression{meta(unix.NFT_META_IIFNAME), compare(m.Not, ifname(m.Name))}, nil
	case capture.OutInterface:
		return []*expression{meta(unix.NFT_META_OIFNAME), compare(m.Not, ifname(m.Name))}, nil
	case capture.Source, capture.Destination:
		return address(m), nil
	case capture.SourcePort:
		return []*expression{transport(0, 2), compare(m.Not, port(m.Num))}, nil
	case capture.DestPort:
		if m.Last != 0 {
			return nil, fmt.Errorf("a range of ports, %s, is a set here", m)
		}
		return []*expression{transport(2, 2), compare(m.Not, port(m.Num))}, nil
	case capture.UID:
		return []*expression{meta(unix.NFT_META_SKUID), compare(m.Not, host32(m.Num))}, nil
	case capture.GID:
		return []*expression{meta(unix.NFT_META_SKGID), compare(m.Not, host32(m.Num))}, nil
	case capture.Mark:
		return []*expression{meta(unix.NFT_META_MARK), compare(m.Not, host32(m.Num))}, nil
	case capture.ConnMark:
		return []*expression{ct(unix.NFT_CT_MARK), compare(m.Not, host32(m.Num))}, nil
	case capture.Original:
		return []*expression{ct(unix.NFT_CT_DIRECTION), compare(m.Not, []byte{0})}, nil
	case capture.Invalid:
		return []*expression{ct(unix.NFT_CT_STATE),
			mask(host32(ctStateInvalid), host32(0)), compare(!m.Not, host32(0))}, nil
	case capture.Socket:
		if m.Not { // without a socket the expression itself does not match, whatever follows
			return nil, fmt.Errorf("nftables cannot match the absence of a socket")
		}
		return []*expression{{"socket", values{socketKey: num(socketTransparent), socketDreg: num(reg)}},
			compareBy(unix.NFT_CMP_LTE, []byte{1})}, nil
	case capture.InSet:
		id, err := sets.number(m.Name)
		if err != nil {
			return nil, err
		}
		return append(key(capture.SetKey(m.Num)), lookup(m.Name, id, m.Not)), nil
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
func address(m capture.Match) []*expression {
	length := uint32(m.Prefix.Addr().BitLen() / 8)
	out := []*expression{network(m.Key, length)}
	if bits := m.Prefix.Bits(); bits < m.Prefix.Addr().BitLen() {
		out = append(out, mask(net.CIDRMask(bits, int(length)*8), make([]byte, length)))
	}
	return append(out, compare(m.Not, m.Prefix.Masked().Addr().AsSlice()))
}

// lookup returns an expression that matches if a set contains the key in the register.
func lookup(set string, id uint32, not bool) *expression {
	e := &expression{"lookup", values{unix.NFTA_LOOKUP_SREG: num(reg), unix.NFTA_LOOKUP_SET: set, unix.NFTA_LOOKUP_SET_ID: num(id)}}
	if not {
		e.values[unix.NFTA_LOOKUP_FLAGS] = num(unix.NFT_LOOKUP_F_INV)
	}
	return e
}

func decide(code int32, chain string) *expression {
	b := binary.BigEndian.AppendUint32(nil, uint32(code))
	return &expression{verdict, values{unix.NFTA_IMMEDIATE_DATA: string(append(b, chain...))}}
}

func immediate(data []byte) *expression {
	return &expression{"immediate", values{unix.NFTA_IMMEDIATE_DREG: num(reg), unix.NFTA_IMMEDIATE_DATA: string(data)}}
}

// setOps are the dynset operations (linux/netfilter/nf_tables.h, enum nft_dynset_ops).
var setOps = map[capture.Verb]uint32{capture.Add: 0, capture.Update: 1, capture.Delete: 2}

func compileAction(a capture.Action, sets setIDs) ([]*expression, error) {
	switch a.Verb {
	case capture.Return:
		return []*expression{decide(unix.NFT_RETURN, "")}, nil
	case capture.Drop:
		return []*expression{decide(nfDrop, "")}, nil
	case capture.Goto:
		return []*expression{decide(unix.NFT_GOTO, a.Name)}, nil
	case capture.Reject:
		return []*expression{{"reject", values{unix.NFTA_REJECT_TYPE: num(unix.NFT_REJECT_TCP_RST)}}}, nil
	case capture.Redirect:
		return []*expression{immediate(port(a.Num)), {"redir", values{unix.NFTA_REDIR_REG_PROTO_MIN: num(reg),
			unix.NFTA_REDIR_REG_PROTO_MAX: num(reg), unix.NFTA_REDIR_FLAGS: num(unix.NF_NAT_RANGE_PROTO_SPECIFIED)}}}, nil
	case capture.TProxy:
		return []*expression{
			immediate(port(a.Num)), {"tproxy", values{tproxyRegPort: num(reg)}}, // of both families
			immediate(host32(a.Mark)), setMeta(unix.NFT_META_MARK),
			decide(nfAccept, ""),
		}, nil
	case capture.Zone:
		return []*expression{
			immediate(binary.NativeEndian.AppendUint16(nil, uint16(a.Num))),
			setCt(unix.NFT_CT_ZONE), decide(unix.NFT_RETURN, ""),
		}, nil
	case capture.SetMark:
		return []*expression{immediate(host32(a.Mark)), setMeta(unix.NFT_META_MARK)}, nil
	case capture.SetConnMark:
		return []*expression{immediate(host32(a.Mark)), setCt(unix.NFT_CT_MARK)}, nil
	case capture.Add, capture.Update, capture.Delete:
		id, err := sets.number(a.Name)
		if err != nil {
			return nil, err
		}
		return append(key(capture.SetKey(a.Num)), &expression{"dynset", values{unix.NFTA_DYNSET_SREG_KEY: num(reg),
			unix.NFTA_DYNSET_OP: num(setOps[a.Verb]), unix.NFTA_DYNSET_SET_NAME: a.Name, unix.NFTA_DYNSET_SET_ID: num(id)}}), nil
	}
	return nil, fmt.Errorf("nftables cannot do %q", a.Verb)
}
