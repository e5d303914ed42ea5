//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// maxReads bounds how often a read is repeated because another program changed tables meanwhile. A
// read takes a millisecond, so only a program that changes tables all the time exhausts it.
const maxReads = 50

// maxTable bounds the bytes of messages about our table. One with the longest lists that capture accepts has a tenth.
const maxTable = 2 << 20

// Read returns our rule set in the kernel, with its counters, or capture.ErrNone. A rule of another
// program in our table is returned as a rule that no intent produces, so that a comparison shows
// it; a table with flags, which may switch off all its rules, is a [capture.DamagedError]. Read does not read the
// routing.
func (b *Backend) Read(context.Context) (capture.State, error) {
	for i := 1; ; i++ {
		r := reader{Conn: b.Conn}
		r.state.Backend, r.state.Packets = capture.NFTables, map[string][]uint64{}
		err := r.read()
		if errors.Is(err, netlink.ErrChanged) && i < maxReads {
			continue
		}
		var damaged *capture.DamagedError
		if errors.Is(err, capture.ErrNone) || errors.As(err, &damaged) {
			return capture.State{}, err
		}
		if err != nil {
			return capture.State{}, explain(fmt.Errorf("reading table inet %s: %w", Table, err))
		}
		r.state.Restore()
		return r.state, nil
	}
}

// Recount returns st with fresh counters. It skips the sets, because reading long sets takes most of the time.
func (b *Backend) Recount(ctx context.Context, st capture.State) (capture.State, error) {
	packets := map[string][]uint64{}
	err := b.Dump(getRule, ours, func(data []byte) error {
		a, _ := netlink.AttributesOf(data)
		chain, n, err := decodeCount(a)
		packets[chain] = append(packets[chain], n)
		return err
	})
	if err != nil {
		return st, explain(fmt.Errorf("reading the counters of table inet %s: %w", Table, err))
	}
	for _, c := range st.Chains {
		if len(packets[c.Name]) != len(c.Rules) { // another program changed the rules
			return b.Read(ctx)
		}
	}
	st.Packets = packets
	return st, nil
}

// decodeCount returns the chain of a rule, and the packets of its first counter.
func decodeCount(a netlink.Attributes) (chain string, packets uint64, err error) {
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_RULE_CHAIN:
			chain = a.Text()
		case unix.NFTA_RULE_EXPRESSIONS:
			for list := (netlink.Attributes{Rest: a.Value}); list.Next(); {
				if e := decodeExpression(netlink.Attributes{Rest: list.Value}); e.name == "counter" && packets == 0 {
					packets = e.number(unix.NFTA_COUNTER_PACKETS)
				}
			}
		}
	}
	return chain, packets, a.Err
}

// A reader reads the table once.
type reader struct {
	*netlink.Conn
	state      capture.State
	generation uint16 // of the tables; part of every message
	begun      bool
	size       int // of the messages so far, in bytes
}

func (r *reader) read() error {
	err := r.Get(getTable, ours, r.same(tableIsPlain))
	if errors.Is(err, unix.ENOENT) {
		return capture.ErrNone
	}
	if err != nil {
		return lacking(err)
	}
	if err := r.Dump(getChain, ours, r.same(r.chain)); err != nil {
		return err
	}
	if err := r.Dump(getSet, ours, r.same(r.set)); err != nil {
		return err
	}
	for i := range r.state.Sets {
		if err := r.elements(&r.state.Sets[i]); err != nil {
			return err
		}
	}
	return r.Dump(getRule, ours, r.same(r.rule))
}

// tableIsPlain returns an error if a table has flags, which ours never has. The rules of a dormant table are listed as
// before, and do nothing.
func tableIsPlain(a netlink.Attributes) error {
	for a.Next() {
		if a.Kind == unix.NFTA_TABLE_FLAGS {
			if flags := a.Number(); flags != 0 {
				return &capture.DamagedError{Err: fmt.Errorf("table inet %s has flags (%#x; 1: its rules are switched off): run capture again, or capture clean", Table, flags)}
			}
		}
	}
	return a.Err
}

// same returns a function for the messages of an answer. It checks that the tables have not changed since the
// first message and are not larger than ours can be, and then passes the message's attributes to the given function.
func (r *reader) same(each func(netlink.Attributes) error) func([]byte) error {
	return func(data []byte) error {
		a, generation := netlink.AttributesOf(data)
		if r.begun && generation != r.generation {
			return netlink.ErrChanged
		}
		r.begun, r.generation = true, generation
		if r.size += len(data); r.size > maxTable {
			return &capture.DamagedError{Err: fmt.Errorf("table inet %s has more than %d MiB, more than capture writes: run it again, or capture clean", Table, maxTable>>20)}
		}
		return each(a)
	}
}

func (r *reader) set(a netlink.Attributes) error {
	table, s, err := decodeSet(a)
	if table == Table {
		r.state.Sets = append(r.state.Sets, s)
	}
	return err
}

// elements reads the elements of a constant set.
func (r *reader) elements(s *capture.Set) (err error) {
	if !s.Constant() || s.Key == capture.UnknownKey {
		return nil
	}
	var bounds []bound
	dumped := r.Dump(getElements, func(b *netlink.Batch) {
		ours(b)
		b.Text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	}, r.same(func(a netlink.Attributes) error {
		bounds, err = decodeElements(bounds, a, setTypes[s.Key].size)
		return err
	}))
	fill(s, bounds)
	return dumped
}

func (r *reader) rule(a netlink.Attributes) error {
	entry, err := decodeRule(a)
	if err != nil {
		return err
	}
	if c := r.state.Chain(entry.chain); c != nil {
		c.Rules = append(c.Rules, entry.rule)
		r.state.Packets[entry.chain] = append(r.state.Packets[entry.chain], entry.packets)
	}
	for _, m := range entry.rule.Match {
		// Only a rule shows whether a set contains sources or destinations.
		if s := r.state.Set(m.Name); m.Key == capture.InSet && s != nil && s.Key != capture.UnknownKey && setTypes[s.Key] == setTypes[m.Num] {
			s.Key = capture.SetKey(m.Num)
		}
	}
	return nil
}

// chain reads a chain of our table.
func (r *reader) chain(a netlink.Attributes) error {
	entry, err := decodeChain(a)
	if entry.table != Table || err != nil {
		return err
	}
	r.state.Chains = append(r.state.Chains, entry.chain())
	return nil
}

// A chainEntry is one chain in a dump.
type chainEntry struct {
	table, name, kind string
	hook              int // -1: none
	priority          int32
	policy            uint32
}

func decodeChain(a netlink.Attributes) (chainEntry, error) {
	c := chainEntry{hook: -1, policy: nfAccept}
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_CHAIN_TABLE:
			c.table = a.Text()
		case unix.NFTA_CHAIN_NAME:
			c.name = a.Text()
		case unix.NFTA_CHAIN_TYPE:
			c.kind = a.Text()
		case unix.NFTA_CHAIN_POLICY:
			c.policy = a.Number()
		case unix.NFTA_CHAIN_HOOK:
			for h := (netlink.Attributes{Rest: a.Value}); h.Next(); {
				switch h.Kind {
				case unix.NFTA_HOOK_HOOKNUM:
					c.hook = int(h.Number())
				case unix.NFTA_HOOK_PRIORITY:
					c.priority = int32(h.Number())
				}
			}
		}
	}
	return c, a.Err
}

// chain returns the chain with its table and hook, and without rules. If we write none that is like it, the table says so.
func (e chainEntry) chain() capture.Chain {
	c := capture.Chain{Name: e.name}
	if e.hook < 0 {
		return c
	}
	for name, num := range hooks {
		if int(num) == e.hook {
			c.Hook = name
		}
	}
	for name, num := range priorities {
		if num == e.priority {
			c.Table = name
		}
	}
	if c.Hook == capture.NoHook || c.Table == "" || chainType(c) != e.kind || e.policy != nfAccept {
		c.Table = capture.Table(fmt.Sprintf("%s, hook %d, priority %d, policy %d", e.kind, e.hook, e.priority, e.policy))
	}
	return c
}

// A ruleEntry is one rule in a dump.
type ruleEntry struct {
	chain   string
	rule    capture.Rule
	packets uint64
}

// decodeRule decodes one rule message. Malformed attributes are an error; expressions that our
// rules do not use result in an unknown rule.
func decodeRule(a netlink.Attributes) (ruleEntry, error) {
	var out ruleEntry
	var exprs []*expression
	var reason string
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_RULE_CHAIN:
			out.chain = a.Text()
		case unix.NFTA_RULE_USERDATA:
			reason = commentOf(a.Value)
		case unix.NFTA_RULE_EXPRESSIONS:
			list := netlink.Attributes{Rest: a.Value}
			for list.Next() {
				exprs = append(exprs, decodeExpression(netlink.Attributes{Rest: list.Value}))
			}
			if list.Err != nil {
				return out, list.Err
			}
		}
	}
	if a.Err != nil {
		return out, a.Err
	}
	out.rule, out.packets = model(exprs)
	out.rule.Reason = reason
	return out, nil
}

// commentOf finds nft's comment in a rule's user data.
func commentOf(udata []byte) string {
	for len(udata) >= 2 {
		kind, length := udata[0], int(udata[1])
		if len(udata) < 2+length {
			return ""
		}
		if kind == typeComment && length > 0 {
			return string(udata[2 : 2+length-1]) // without the final NUL
		}
		udata = udata[2+length:]
	}
	return ""
}
