package iptables

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/capture"
)

// Parse reads the output of iptables-save -c and ip6tables-save -c; empty is
// nothing. The state has no Routing, which is not the packet filter's. Without
// rules of ours the error is [capture.ErrNone]; what is ours and not as we write
// it, or in one family only when it is for both, is an error that names it.
func Parse(v4, v6 string) (capture.State, error) {
	four, err := scan(v4)
	if err != nil {
		return capture.State{}, fmt.Errorf("IPv4: %w", err)
	}
	six, err := scan(v6)
	if err != nil {
		return capture.State{}, fmt.Errorf("IPv6: %w", err)
	}
	return assemble(four, six)
}

// A half is a chain as one family has it.
type half struct {
	name  string
	table capture.Table
	hook  capture.Hook
	rules []rule
}

func assemble(four, six owned) (capture.State, error) {
	var families capture.Families
	if !four.empty() {
		families |= capture.IPv4
	}
	if !six.empty() {
		families |= capture.IPv6
	}
	if families == 0 {
		return capture.State{}, capture.ErrNone
	}
	timeouts := map[string]time.Duration{}
	byFamily := map[capture.Families][]half{}
	for i, o := range []owned{four, six} {
		if o.empty() {
			continue
		}
		family := []capture.Families{capture.IPv4, capture.IPv6}[i]
		halves, err := parseHalves(o, family, families == capture.DualStack, timeouts)
		if err != nil {
			return capture.State{}, fmt.Errorf("%s: %w", family, err)
		}
		byFamily[family] = halves
	}
	st := capture.State{Packets: map[string][]uint64{}}
	st.Families = families
	if err := join(&st, byFamily); err != nil {
		return capture.State{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(timeouts)) {
		st.Sets = append(st.Sets, capture.Set{Name: name, Timeout: timeouts[name]})
	}
	return st, identify(&st)
}

// packetOrder is the order in which a packet meets the tables, for reading.
var packetOrder = []capture.Table{capture.Raw, capture.Mangle, capture.NAT, capture.Filter}

// parseHalves reads the chains of one family.
func parseHalves(o owned, family capture.Families, both bool, timeouts map[string]time.Duration) ([]half, error) {
	var out []half
	for _, table := range packetOrder {
		t := o.at(table)
		hooks, err := parseJumps(t)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		for _, kernel := range t.chains {
			h := half{table: table, hook: hooks[kernel]}
			if h.name, err = chainName(kernel); err != nil {
				return nil, fmt.Errorf("table %s: %w", table, err)
			}
			if slices.ContainsFunc(out, func(other half) bool { return other.name == h.name }) {
				return nil, fmt.Errorf("chain %s is in two tables", h.name)
			}
			for _, e := range t.rules[kernel] {
				r, err := parseRule(e, family, both, timeouts)
				if err != nil {
					return nil, fmt.Errorf("chain %s, rule %q: %w", h.name, e.spec, err)
				}
				h.rules = append(h.rules, r)
			}
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b half) int {
		return cmp.Or(
			cmp.Compare(slices.Index(packetOrder, a.table), slices.Index(packetOrder, b.table)),
			cmp.Compare(hookRank(a.hook), hookRank(b.hook)),
			strings.Compare(a.name, b.name))
	})
	return out, nil
}

// hookRank puts the chains that are called before those that others go to.
func hookRank(h capture.Hook) int {
	return (slices.Index([]capture.Hook{capture.Prerouting, capture.Input, capture.Output}, h) + 4) % 4
}

// parseJumps tells at which hook a chain is called.
func parseJumps(t tableRules) (map[string]capture.Hook, error) {
	hooks := map[string]capture.Hook{}
	for _, j := range t.jumps {
		words, err := split(j.spec)
		if err != nil {
			return nil, err
		}
		chain := words[len(words)-1]
		if want, _ := split(jumpTo(chain)); !slices.Equal(words, want) {
			return nil, fmt.Errorf("chain %s, rule %q: it leads to our rules, and is not ours", j.chain, j.spec)
		}
		hook, err := hookOf(j.chain)
		if err != nil {
			return nil, err
		}
		if _, ok := hooks[chain]; ok || !slices.Contains(t.chains, chain) {
			return nil, fmt.Errorf("chain %s, rule %q: it is there twice, or leads nowhere", j.chain, j.spec)
		}
		hooks[chain] = hook
	}
	return hooks, nil
}

// join puts the families together. Each holds the same chains.
func join(st *capture.State, byFamily map[capture.Families][]half) error {
	first := byFamily[capture.IPv4]
	if first == nil {
		first = byFamily[capture.IPv6]
	}
	second := first
	if st.Families == capture.DualStack {
		second = byFamily[capture.IPv6]
	}
	if len(first) != len(second) {
		return fmt.Errorf("%d chains for IPv4, %d for IPv6: one family is only half there", len(first), len(second))
	}
	for i, a := range first {
		b := second[i]
		if a.name != b.name || a.table != b.table || a.hook != b.hook {
			return fmt.Errorf("chain %s (%s) for IPv4 stands against chain %s (%s) for IPv6", a.name, a.hook, b.name, b.hook)
		}
		rules := a.rules
		if st.Families == capture.DualStack {
			var err error
			if rules, err = merge(a.rules, b.rules); err != nil {
				return fmt.Errorf("chain %s: %w", a.name, err)
			}
		}
		c := capture.Chain{Name: a.name, Table: a.table, Hook: a.hook}
		var packets []uint64
		for _, r := range rules {
			c.Rules, packets = append(c.Rules, r.Rule), append(packets, r.packets)
		}
		st.Chains = append(st.Chains, c)
		st.Packets[c.Name] = packets
	}
	return nil
}

// merge puts rules of one family to their places, and between them those that
// both have, in their order.
func merge(four, six []rule) ([]rule, error) {
	var both [2][]rule
	placed := map[int]rule{}
	for i, rules := range [][]rule{four, six} {
		for _, r := range rules {
			if r.index < 0 {
				both[i] = append(both[i], r)
				continue
			}
			if _, ok := placed[r.index]; ok {
				return nil, fmt.Errorf("rule %q: another has its place", r)
			}
			placed[r.index] = r
		}
	}
	if len(both[0]) != len(both[1]) {
		return nil, fmt.Errorf("of the rules for both families, IPv4 has %d and IPv6 has %d", len(both[0]), len(both[1]))
	}
	out := make([]rule, len(both[0])+len(placed))
	next := 0
	for i := range out {
		r, ok := placed[i]
		if !ok && next == len(both[0]) {
			return nil, errors.New("the places of the rules for one family do not fit their number")
		}
		if !ok {
			var other rule
			r, other = both[0][next], both[1][next]
			next++
			if r.String() != other.String() || r.Reason != other.Reason {
				return nil, fmt.Errorf("rule %q for IPv4 stands against %q for IPv6", r, other)
			}
			r.packets += other.packets
		}
		out[i] = r
	}
	return out, nil
}

// identify reads the backend off the record.
func identify(st *capture.State) error {
	record, _ := st.Recorded()
	fields := strings.Fields(record)
	if len(fields) != 3 || fields[1] != capture.IPTables {
		return fmt.Errorf("rules of outrider without a record of who made them (%q): they are only half there", record)
	}
	st.Backend = fields[1]
	return nil
}
