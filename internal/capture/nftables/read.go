package nftables

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// Read returns our rule set as the kernel has it, with its counters, or
// capture.ErrNone. A rule of another program in our table is returned as one that no
// intent makes, so that a comparison shows it. The routing is not read.
func (b *Backend) Read(context.Context) (capture.State, error) {
	table, err := b.table()
	if err != nil {
		return capture.State{}, err
	}
	st := capture.State{Ruleset: capture.Ruleset{Backend: capture.NFTables}, Packets: map[string][]uint64{}}
	chains, err := b.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return capture.State{}, fmt.Errorf("listing chains of table inet %s: %w", Table, err)
	}
	for _, c := range chains {
		if c.Table.Name == Table {
			st.Chains = append(st.Chains, modelChain(c))
		}
	}
	sets, err := b.conn.GetSets(table)
	if err != nil {
		return capture.State{}, fmt.Errorf("listing sets of table inet %s: %w", Table, err)
	}
	for _, s := range sets {
		st.Sets = append(st.Sets, modelSet(s))
	}
	rules, err := dumpRules()
	if err != nil {
		return capture.State{}, fmt.Errorf("listing rules of table inet %s: %w", Table, err)
	}
	for _, r := range rules {
		if c := st.Chain(r.chain); c != nil {
			c.Rules = append(c.Rules, r.rule)
			st.Packets[r.chain] = append(st.Packets[r.chain], r.packets)
		}
	}
	st.Restore()
	return st, nil
}

func modelChain(c *nftables.Chain) capture.Chain {
	out := capture.Chain{Name: c.Name}
	if c.Hooknum == nil || c.Priority == nil {
		return out
	}
	for hook, num := range hooks {
		if *num == *c.Hooknum {
			out.Hook = hook
		}
	}
	for table, priority := range priorities {
		if *priority == *c.Priority {
			out.Table = table
		}
	}
	if out.Hook == capture.NoHook || out.Table == "" || chainType(out) != c.Type {
		out.Table = capture.Table(fmt.Sprintf("%s, hook %d, priority %d", c.Type, *c.Hooknum, *c.Priority))
	}
	return out
}

func modelSet(s *nftables.Set) capture.Set {
	out := capture.Set{Name: s.Name, Timeout: s.Timeout}
	if s.KeyType.Bytes == nftables.TypeInetService.Bytes {
		out.Key = capture.ByPort
	}
	return out
}

// A ruleEntry is one rule of a dump.
type ruleEntry struct {
	chain   string
	rule    capture.Rule
	packets uint64
}

// dumpRules lists all rules of our table at once. The library's own dump is a request
// for each chain, and leaves out expressions that parking needs.
func dumpRules() ([]ruleEntry, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(Table), 0)}})
	if err != nil {
		return nil, err
	}
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE,
			Flags: netlink.Request | netlink.Dump,
		},
		Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
	if err != nil {
		return nil, err
	}
	var out []ruleEntry
	for _, msg := range replies {
		entry, err := decodeRule(msg.Data)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	return out, nil
}

// nfgenmsgLen is the header before the attributes of every nf_tables message.
const nfgenmsgLen = 4

// decodeRule reads one rule message. Attributes that do not parse are an error;
// expressions that no rule of ours has make an unknown rule.
func decodeRule(data []byte) (ruleEntry, error) {
	var out ruleEntry
	if len(data) < nfgenmsgLen {
		return out, fmt.Errorf("rule message of %d bytes", len(data))
	}
	ad, err := netlink.NewAttributeDecoder(data[nfgenmsgLen:])
	if err != nil {
		return out, err
	}
	ad.ByteOrder = binary.BigEndian
	var exprs []any
	var reason string
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_CHAIN:
			out.chain = ad.String()
		case unix.NFTA_RULE_USERDATA:
			reason = commentOf(ad.Bytes())
		case unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(one *netlink.AttributeDecoder) error {
						exprs = append(exprs, decodeExpr(one))
						return nil
					})
				}
				return nil
			})
		}
	}
	if err := ad.Err(); err != nil {
		return out, err
	}
	out.rule, out.packets = model(exprs)
	out.rule.Reason = reason
	return out, nil
}

// commentOf finds nft's comment in a rule's user data. The library's own reader does
// not check lengths.
func commentOf(udata []byte) string {
	for len(udata) >= 2 {
		kind, length := udata[0], int(udata[1])
		if len(udata) < 2+length {
			return ""
		}
		if kind == byte(userdata.TypeComment) && length > 0 {
			return string(udata[2 : 2+length-1]) // without the closing NUL
		}
		udata = udata[2+length:]
	}
	return ""
}

// An opaque stands for an expression that no rule of ours has.
type opaque string

// decodeExpr reads one expression; what it cannot read is opaque.
func decodeExpr(ad *netlink.AttributeDecoder) any {
	name, out := "", any(opaque("?"))
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_EXPR_NAME:
			name = ad.String()
			out = opaque(name)
		case unix.NFTA_EXPR_DATA:
			out = decodeExprData(name, ad.Bytes())
		}
	}
	return out
}

// readable are the expressions that the library reads as it writes them.
var readable = map[string]func() expr.Any{
	"meta":    func() expr.Any { return &expr.Meta{} },
	"cmp":     func() expr.Any { return &expr.Cmp{} },
	"payload": func() expr.Any { return &expr.Payload{} },
	"bitwise": func() expr.Any { return &expr.Bitwise{} },
	"lookup":  func() expr.Any { return &expr.Lookup{} },
	"dynset":  func() expr.Any { return &expr.Dynset{} },
	"counter": func() expr.Any { return &expr.Counter{} },
	"redir":   func() expr.Any { return &expr.Redir{} },
	"reject":  func() expr.Any { return &expr.Reject{} },
	"socket":  func() expr.Any { return &expr.Socket{} },
}

func decodeExprData(name string, data []byte) any {
	switch name {
	case "ct":
		return decodeCt(data)
	case "immediate":
		return decodeImmediate(data)
	case "tproxy":
		return decodeTProxy(data)
	}
	if e, ok := readable[name]; ok {
		if e := e(); unmarshal(data, e) == nil {
			return e
		}
	}
	return opaque(name)
}

// unmarshal is the library's, made safe: some of its readers do not check lengths.
func unmarshal(data []byte, e expr.Any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("malformed %T: %v", e, r)
		}
	}()
	return expr.Unmarshal(unix.NFPROTO_INET, data, e)
}

func decodeImmediate(data []byte) any {
	imm, v := &expr.Immediate{}, &expr.Verdict{}
	if unmarshal(data, imm) == nil && len(imm.Data) > 0 {
		return imm
	}
	if unmarshal(data, v) == nil && imm.Register == unix.NFT_REG_VERDICT {
		return v
	}
	return opaque("immediate")
}

// decodeTProxy reads a tproxy expression for both families, with a port and no address.
// The library cannot.
func decodeTProxy(data []byte) any {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return opaque("tproxy")
	}
	ad.ByteOrder = binary.BigEndian
	t := &expr.TProxy{Family: unix.NFPROTO_UNSPEC}
	for ad.Next() {
		switch {
		case ad.Type() == expr.NFTA_TPROXY_FAMILY && ad.Uint32() == unix.NFPROTO_UNSPEC:
		case ad.Type() == expr.NFTA_TPROXY_REG_PORT:
			t.RegPort = ad.Uint32()
		default:
			return opaque("tproxy")
		}
	}
	if ad.Err() != nil {
		return opaque("tproxy")
	}
	return t
}

// decodeCt reads a ct expression; the library does not tell a read from a write.
func decodeCt(data []byte) any {
	ct := &expr.Ct{}
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return opaque("ct")
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_CT_KEY:
			ct.Key = expr.CtKey(ad.Uint32())
		case unix.NFTA_CT_DREG:
			ct.Register = ad.Uint32()
		case unix.NFTA_CT_SREG:
			ct.Register, ct.SourceRegister = ad.Uint32(), true
		}
	}
	if ad.Err() != nil || ct.Register != reg {
		return opaque("ct")
	}
	return ct
}
