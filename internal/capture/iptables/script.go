package iptables

import (
	"fmt"
	"strings"

	"outrider.dev/internal/capture"
)

// Script is rs as input for iptables-restore and ip6tables-restore, for people to read:
// a part for each family.
func Script(rs capture.Ruleset) (string, error) {
	var b strings.Builder
	for _, f := range []struct {
		family  capture.Families
		program string
	}{{capture.IPv4, "iptables-restore"}, {capture.IPv6, "ip6tables-restore"}} {
		if !rs.Families.Has(f.family) {
			continue
		}
		text, err := Render(rs, f.family)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "# for %s --noflush\n%s", f.program, text)
	}
	return b.String(), nil
}
