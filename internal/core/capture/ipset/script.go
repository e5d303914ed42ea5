package ipset

import (
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/core/capture"
)

// Script returns the sets of rs as input for ipset restore, for people to read.
func Script(rs capture.Ruleset) string {
	var b strings.Builder
	title := "# for ipset restore\n"
	for _, s := range rs.Sets {
		kind, family, ok := kindOf(s.Key)
		if !ok {
			continue
		}
		b.WriteString(title)
		title = ""
		if !s.Constant() {
			for _, f := range families {
				if !rs.Families.Has(f) {
					continue
				}
				fmt.Fprintf(&b, "create %s %s range 0-65535 timeout %d\n", Name('a', s, f), kind, s.Timeout/time.Second)
			}
			continue
		}
		name := Name('a', s, 0)
		if kind == bitmapPort {
			fmt.Fprintf(&b, "create %s %s range 0-65535\n", name, kind)
		} else {
			fmt.Fprintf(&b, "create %s %s family %s maxelem %d\n", name, kind, map[uint8]string{family4: "inet", family6: "inet6"}[family], len(prefixesOf(s.Addresses)))
		}
		for _, i := range s.Numbers {
			fmt.Fprintf(&b, "add %s %s\n", name, i)
		}
		for _, p := range prefixesOf(s.Addresses) {
			fmt.Fprintf(&b, "add %s %s\n", name, p)
		}
	}
	return b.String()
}
