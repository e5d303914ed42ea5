package iptables

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// A chain is a [capture.Chain] of one family, with the counters of its rules.
type chain struct {
	capture.Chain
	packets []uint64
}

// assemble returns the state that the rules of both families form. It has no Routing, which is not part of the
// packet filter. The error is [capture.ErrNone] if there are no rules of ours. It fails if some of our rules are
// not as we write them, or are in one family but belong in both; that error names the rules.
func assemble(four, six owned, kernel map[string]ipset.Set) (capture.State, error) {
	st := capture.State{}
	sets := newSetReader(kernel)
	var chains [2][]chain
	for i, o := range []owned{four, six} {
		if o.empty() {
			continue
		}
		family := []capture.Families{capture.IPv4, capture.IPv6}[i]
		st.Families |= family
		var err error
		if chains[i], err = parseChains(o, family, sets); err != nil {
			return capture.State{}, fmt.Errorf("%s: %w", family, err)
		}
	}
	if st.Families == 0 {
		return capture.State{}, capture.ErrNone
	}
	var err error
	if st.Chains, st.Packets, err = merge(st.Families, chains[0], chains[1]); err != nil {
		return capture.State{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(sets.byName)) {
		st.Sets = append(st.Sets, sets.byName[name])
	}
	record, _ := st.Recorded()
	fields := strings.Fields(record)
	if len(fields) != 3 || fields[1] != capture.IPTables {
		return capture.State{}, fmt.Errorf("rules of outrider with no record of the version that wrote them (%q): they are only half there", record)
	}
	st.Backend = fields[1]
	return st, nil
}

// parseChains parses the chains of one family, sorted by name.
func parseChains(o owned, family capture.Families, sets *setReader) ([]chain, error) {
	var out []chain
	for _, table := range tables {
		t := o.at(table)
		hooks, err := parseJumps(t)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		for _, kernel := range t.chains {
			c := chain{Chain: capture.Chain{Table: table, Hook: hooks[kernel]}}
			if c.Name, err = chainName(kernel); err != nil {
				return nil, fmt.Errorf("table %s: %w", table, err)
			}
			if slices.ContainsFunc(out, func(other chain) bool { return other.Name == c.Name }) {
				return nil, fmt.Errorf("chain %s is in two tables", c.Name)
			}
			for _, e := range t.rules[kernel] {
				r, err := parseRule(e.spec, family, sets)
				if err != nil {
					return nil, fmt.Errorf("chain %s, rule %q: %w", c.Name, e.spec, err)
				}
				c.Rules, c.packets = append(c.Rules, r), append(c.packets, e.packets)
			}
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name }) // sort.Slice takes less code, see sorted in package capture
	return out, nil
}

// parseJumps finds the hook at which each chain is called.
func parseJumps(t tableRules) (map[string]capture.Hook, error) {
	hooks := map[string]capture.Hook{}
	for _, j := range t.jumps {
		words, err := split(j.spec)
		if err != nil {
			return nil, err
		}
		chain := words[len(words)-1]
		if want, _ := split(jumpTo(chain)); !slices.Equal(words, want) {
			return nil, fmt.Errorf("chain %s, rule %q: it jumps to our rules, and is not ours", j.chain, j.spec)
		}
		hook, err := hookOf(j.chain)
		if err != nil {
			return nil, err
		}
		if _, ok := hooks[chain]; ok || !slices.Contains(t.chains, chain) {
			return nil, fmt.Errorf("chain %s, rule %q: it is there twice, or jumps to no chain", j.chain, j.spec)
		}
		hooks[chain] = hook
	}
	return hooks, nil
}

// merge combines the chains of the two families, and adds up their counters.
func merge(families capture.Families, four, six []chain) (chains []capture.Chain, packets map[string][]uint64, err error) {
	same := func(a, b chain) bool { return a.Name == b.Name && a.Table == b.Table && a.Hook == b.Hook }
	if families == capture.DualStack && !slices.EqualFunc(four, six, same) {
		return nil, nil, fmt.Errorf("the chains for IPv4 are %s, those for IPv6 %s: one family is only half there", names(four), names(six))
	}
	packets = map[string][]uint64{}
	for i, c := range slices.MaxFunc([][]chain{four, six}, func(a, b []chain) int { return len(a) - len(b) }) {
		var v4, v6 chain
		if len(four) > 0 {
			v4 = four[i]
		}
		if len(six) > 0 {
			v6 = six[i]
		}
		c.Rules = capture.Merge(families, v4.Rules, v6.Rules)
		for _, r := range c.Rules {
			var n uint64
			if r.Family != capture.IPv6 {
				n += v4.count()
			}
			if r.Family != capture.IPv4 {
				n += v6.count()
			}
			packets[c.Name] = append(packets[c.Name], n)
		}
		chains = append(chains, c.Chain)
	}
	return chains, packets, nil
}

// count returns the packets of the next rule, and removes its counter from the list.
func (c *chain) count() uint64 {
	if len(c.packets) == 0 {
		return 0
	}
	n := c.packets[0]
	c.packets = c.packets[1:]
	return n
}

func names(chains []chain) string {
	var out []string
	for _, c := range chains {
		out = append(out, fmt.Sprintf("%s (%s %s)", c.Name, c.Table, c.Hook))
	}
	return strings.Join(out, ", ")
}
