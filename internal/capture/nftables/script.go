package nftables

import (
	"fmt"
	"strings"

	"outrider.dev/internal/capture"
)

// Script is rs as input for "nft -f": the same transaction, for people to read or run.
func Script(rs capture.Ruleset) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\n", Table, Table)
	fmt.Fprintf(&b, "table inet %s {\n", Table)
	for _, s := range rs.Sets {
		t := setTypes[s.Key]
		fmt.Fprintf(&b, "\tset %s { type %s; ", s.Name, t.name)
		switch {
		case !s.Constant():
			fmt.Fprintf(&b, "size %d; flags dynamic,timeout; timeout %s; }\n", max(sizeByFamily, s.Size), s.Timeout)
			continue
		case t.interval:
			fmt.Fprint(&b, "flags interval; ")
		}
		fmt.Fprintf(&b, "elements = { %s } }\n", s.Elements())
	}
	for _, c := range rs.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != capture.NoHook {
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", chainType(c), c.Hook, priorities[c.Table])
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", line(r))
		}
		fmt.Fprintln(&b, "\t}")
	}
	fmt.Fprintln(&b, "}")
	return b.String()
}

func line(r capture.Rule) string {
	conditions := strings.TrimSuffix(r.String(), r.Action.String())
	return fmt.Sprintf("%scounter %s comment %q", conditions, r.Action, r.Reason)
}
