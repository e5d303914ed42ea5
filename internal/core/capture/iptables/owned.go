package iptables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/core/capture"
)

// owned contains our rules in one family of one variant, in the form of iptables-save.
type owned map[capture.Table]*tableRules

// tableRules contains our rules in one table.
type tableRules struct {
	chains []string           // ours, in their order
	rules  map[string][]entry // by chain
	jumps  []jump             // from other chains to ours
}

// An entry is one rule: its line without the chain, and its packet count.
type entry struct {
	spec    string
	packets uint64
}

type jump struct{ chain, spec string }

func (o owned) empty() bool { return len(o) == 0 }

func (o owned) table(t capture.Table) *tableRules {
	if o[t] == nil {
		o[t] = &tableRules{rules: map[string][]entry{}}
	}
	return o[t]
}

// at returns the table for reading; it is empty if there is none.
func (o owned) at(t capture.Table) tableRules {
	if o[t] == nil {
		return tableRules{}
	}
	return *o[t]
}

// scan finds our rules in the output of iptables-save, with or without counters.
func scan(text string) (owned, error) {
	out := owned{}
	table := capture.Table("")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = capture.Table(name)
			continue
		}
		if !slices.Contains(tables, table) {
			continue
		}
		if err := out.scanLine(table, line); err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
	}
	return out, nil
}

// scanLine adds the line if it is a chain or a rule of ours. It does not parse lines of other
// programs.
func (o owned) scanLine(table capture.Table, line string) error {
	if rest, ok := strings.CutPrefix(line, ":"); ok {
		if name, _, _ := strings.Cut(rest, " "); isOurs(name) {
			t := o.table(table)
			if slices.Contains(t.chains, name) {
				return fmt.Errorf("chain %s is there twice", name)
			}
			t.chains = append(t.chains, name)
		}
		return nil
	}
	packets, rest := counters(line)
	rest, ok := strings.CutPrefix(rest, "-A ")
	if !ok {
		return nil
	}
	chain, spec, _ := strings.Cut(rest, " ")
	if !isOurs(chain) {
		if targetOurs(spec) {
			t := o.table(table)
			t.jumps = append(t.jumps, jump{chain, spec})
		}
		return nil
	}
	t := o.table(table)
	if !slices.Contains(t.chains, chain) {
		return fmt.Errorf("rule in chain %s, which is not declared", chain)
	}
	t.rules[chain] = append(t.rules[chain], entry{spec, packets})
	return nil
}

// counters removes "[packets:bytes] " from a line.
func counters(line string) (packets uint64, rest string) {
	body, ok := strings.CutPrefix(line, "[")
	if !ok {
		return 0, line
	}
	count, rest, ok := strings.Cut(body, "] ")
	if !ok {
		return 0, line
	}
	number, _, _ := strings.Cut(count, ":")
	packets, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, line
	}
	return packets, rest
}

// targetOurs reports whether a rule jumps or goes to a chain of ours.
func targetOurs(spec string) bool {
	words, err := split(spec)
	if err != nil {
		return false
	}
	for i, w := range words[:max(0, len(words)-1)] {
		if (w == "-j" || w == "-g") && isOurs(words[i+1]) {
			return true
		}
	}
	return false
}

// change returns a transition without its guard. It names only our chains and jumps to them. If
// everything is removed, capture is removed first and parking last.
func change(from, to owned) string {
	order := slices.Clone(tables)
	if to.empty() {
		slices.Reverse(order)
	}
	var b strings.Builder
	for _, name := range order {
		if from[name] != nil || to[name] != nil {
			changeTable(&b, name, from.at(name), to.at(name))
		}
	}
	return b.String()
}

func changeTable(b *strings.Builder, name capture.Table, from, to tableRules) {
	fmt.Fprintf(b, "*%s\n", name)
	var stale []string
	for _, c := range from.chains {
		if !slices.Contains(to.chains, c) {
			stale = append(stale, c)
		}
	}
	// Naming a chain creates or empties it. All stale chains must be empty before the first is deleted, because
	// their rules refer to one another.
	for _, c := range slices.Concat(to.chains, stale) {
		fmt.Fprintf(b, ":%s - [0:0]\n", c)
	}
	for _, j := range without(from.jumps, to.jumps) {
		fmt.Fprintf(b, "-D %s %s\n", j.chain, j.spec)
	}
	for _, c := range stale {
		fmt.Fprintf(b, "-X %s\n", c)
	}
	for _, c := range to.chains {
		for _, e := range to.rules[c] {
			fmt.Fprintf(b, "-A %s %s\n", c, e.spec)
		}
	}
	for _, j := range without(to.jumps, from.jumps) {
		fmt.Fprintf(b, "-A %s %s\n", j.chain, j.spec)
	}
	b.WriteString("COMMIT\n")
}

// without returns the list a after the removal of the elements of the list b. Each element of b removes at most
// one element.
func without(a, b []jump) []jump {
	rest := slices.Clone(a)
	for _, j := range b {
		if i := slices.Index(rest, j); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest
}
