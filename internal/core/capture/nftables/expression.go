//go:build linux

package nftables

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

// An expression is one step of a rule in nf_tables. Two are equal if the kernel does the same for both.
type expression struct {
	name   string
	values values
}

// values has the value of each attribute of an expression, by the attribute's number. A number is big-endian
// without its leading zeros, because the kernel returns some numbers only if they are not zero.
type values [unix.NFTA_DYNSET_FLAGS + 1]string

// verdict is our name for an expression that the kernel calls immediate, with the register of verdicts.
const verdict = "verdict"

// A form is the encoding of an attribute.
type form int

const (
	number   form = iota // of four bytes
	optional             // a number that is left out if it is zero
	octet                // a number of one byte
	wide                 // a number of eight bytes
	text
	data // bytes that a register receives or is compared with
	code // the code of a verdict, in four bytes, and the name of a chain
)

// sizes has the size in bytes of each form of a number.
var sizes = [...]int{number: 4, optional: 4, octet: 1, wide: 8}

type attribute struct {
	kind uint16
	form form
}

// expressions lists the expressions of which our rules consist, with all attributes that can differ from zero.
var expressions = []struct {
	name       string
	attributes []attribute
}{
	{"meta", []attribute{{unix.NFTA_META_KEY, number}, {unix.NFTA_META_DREG, optional}, {unix.NFTA_META_SREG, optional}}},
	{"ct", []attribute{{unix.NFTA_CT_KEY, number}, {unix.NFTA_CT_DREG, optional}, {unix.NFTA_CT_SREG, optional}}},
	{"socket", []attribute{{socketDreg, number}, {socketKey, number}, {socketLevel, number}}},
	{"payload", []attribute{{unix.NFTA_PAYLOAD_DREG, number}, {unix.NFTA_PAYLOAD_BASE, number},
		{unix.NFTA_PAYLOAD_OFFSET, number}, {unix.NFTA_PAYLOAD_LEN, number}}},
	{"bitwise", []attribute{{unix.NFTA_BITWISE_SREG, number}, {unix.NFTA_BITWISE_DREG, number}, {unix.NFTA_BITWISE_LEN, number},
		{unix.NFTA_BITWISE_MASK, data}, {unix.NFTA_BITWISE_XOR, data}}},
	{"cmp", []attribute{{unix.NFTA_CMP_SREG, number}, {unix.NFTA_CMP_OP, number}, {unix.NFTA_CMP_DATA, data}}},
	{"lookup", []attribute{{unix.NFTA_LOOKUP_SREG, number}, {unix.NFTA_LOOKUP_FLAGS, optional}, {unix.NFTA_LOOKUP_SET, text},
		{unix.NFTA_LOOKUP_SET_ID, number}}},
	{"dynset", []attribute{{unix.NFTA_DYNSET_SREG_KEY, number}, {unix.NFTA_DYNSET_OP, number}, {unix.NFTA_DYNSET_SET_NAME, text},
		{unix.NFTA_DYNSET_SET_ID, number}, {unix.NFTA_DYNSET_FLAGS, number}}},
	{"counter", []attribute{{unix.NFTA_COUNTER_BYTES, wide}, {unix.NFTA_COUNTER_PACKETS, wide}}},
	{"immediate", []attribute{{unix.NFTA_IMMEDIATE_DREG, number}, {unix.NFTA_IMMEDIATE_DATA, data}}},
	{verdict, []attribute{{unix.NFTA_IMMEDIATE_DREG, number}, {unix.NFTA_IMMEDIATE_DATA, code}}},
	{"redir", []attribute{{unix.NFTA_REDIR_REG_PROTO_MIN, number}, {unix.NFTA_REDIR_REG_PROTO_MAX, number}, {unix.NFTA_REDIR_FLAGS, number}}},
	{"reject", []attribute{{unix.NFTA_REJECT_TYPE, number}, {unix.NFTA_REJECT_ICMP_CODE, octet}}},
	{"tproxy", []attribute{{tproxyFamily, number}, {tproxyRegPort, number}}},
}

// The attributes of two expressions (linux/netfilter/nf_tables.h):
const (
	socketKey   = 1
	socketDreg  = 2
	socketLevel = 3

	tproxyFamily  = 1
	tproxyRegPort = 3
)

// num returns the value of an attribute that is a number.
func num[T ~int | ~uint16 | ~uint32](n T) string {
	return trim(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func trim(b []byte) string { return strings.TrimLeft(string(b), "\x00") }

// number is the inverse of num. The attribute must be a number in expressions of this name: a value of another
// form may be too long.
func (e *expression) number(kind uint16) uint64 {
	var b [8]byte
	v := e.values[kind]
	copy(b[8-len(v):], v)
	return binary.BigEndian.Uint64(b[:])
}

// String returns the values of e in hexadecimal, by their numbers.
func (e *expression) String() string {
	s := e.name
	for i, v := range e.values {
		if v != "" {
			s += fmt.Sprintf(" %d=%x", i, v)
		}
	}
	return s
}

// kernelName returns the kernel's name for an expression.
func kernelName(name string) string {
	if name == verdict {
		return "immediate"
	}
	return name
}

// expression appends e to the list of a rule.
func (b batch) expression(e *expression) {
	b.Nest(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, func() {
		b.Text(unix.NFTA_EXPR_NAME, kernelName(e.name))
		b.Nest(unix.NLA_F_NESTED|unix.NFTA_EXPR_DATA, func() {
			for _, known := range expressions {
				if known.name != e.name {
					continue
				}
				for _, a := range known.attributes {
					b.value(a, e.values[a.kind])
				}
			}
		})
	})
}

func (b batch) value(a attribute, v string) {
	switch a.form {
	case text:
		b.Text(a.kind, v)
	case data:
		b.Nest(unix.NLA_F_NESTED|a.kind, func() { b.Attribute(unix.NFTA_DATA_VALUE, []byte(v)) })
	case code:
		b.Nest(unix.NLA_F_NESTED|a.kind, func() {
			b.Nest(unix.NLA_F_NESTED|unix.NFTA_DATA_VERDICT, func() {
				b.Attribute(unix.NFTA_VERDICT_CODE, []byte(v[:sizes[number]]))
				if chain := v[sizes[number]:]; chain != "" {
					b.Text(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	default:
		if v != "" || a.form != optional {
			b.Attribute(a.kind, append(make([]byte, sizes[a.form]-len(v)), v...))
		}
	}
}

// decodeExpression is the inverse of batch.expression. For an expression that our rules do not use, the result
// has no values, and a name that none of our expressions has.
func decodeExpression(a netlink.Attributes) *expression {
	name := ""
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_EXPR_NAME:
			name = a.Text()
		case unix.NFTA_EXPR_DATA:
			for _, known := range expressions {
				if kernelName(known.name) != name {
					continue
				}
				if v, ok := decodeValues(netlink.Attributes{Rest: a.Value}, known.attributes); ok {
					return &expression{known.name, v}
				}
			}
		}
	}
	return &expression{name: "?" + name}
}

// decodeValues decodes the attributes of an expression. Attributes that are not known must be zero.
func decodeValues(a netlink.Attributes, known []attribute) (out values, ok bool) {
	for a.Next() {
		found := false
		for _, k := range known {
			if k.kind == a.Kind {
				found = true
				if out[k.kind], ok = decodeValue(k.form, a); !ok {
					return out, false
				}
			}
		}
		if !found && trim(a.Value) != "" {
			return out, false
		}
	}
	return out, a.Err == nil
}

func decodeValue(f form, a netlink.Attributes) (string, bool) {
	switch f {
	case text:
		return a.Text(), true
	case data, code:
		return decodeData(f, netlink.Attributes{Rest: a.Value})
	}
	return trim(a.Value), len(a.Value) == sizes[f]
}

// decodeData decodes the value for a register; the value of a verdict is its code and the name of a chain.
func decodeData(f form, a netlink.Attributes) (out string, ok bool) {
	for a.Next() {
		switch {
		case f == data && a.Kind == unix.NFTA_DATA_VALUE:
			out = string(a.Value)
		case f == code && a.Kind == unix.NFTA_DATA_VERDICT:
			chain := ""
			for v := (netlink.Attributes{Rest: a.Value}); v.Next(); {
				switch {
				case v.Kind == unix.NFTA_VERDICT_CODE && len(v.Value) == sizes[number]:
					out = string(v.Value)
				case v.Kind == unix.NFTA_VERDICT_CHAIN:
					chain = v.Text()
				}
			}
			if out == "" {
				return "", false
			}
			out += chain
		default:
			return "", false
		}
	}
	return out, a.Err == nil && out != ""
}
