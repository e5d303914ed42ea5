package check

import (
	"cmp"
	"fmt"
	"slices"
)

// Summary shortens checks that were made for many objects. Of each such check it returns a line with the number of
// objects that are ok, a limited number of the objects that are not ok, and a line for each reason why objects were
// skipped. A check of few objects stays complete.
func Summary(all []Check, most int) (out []Check) {
	const few = 4
	groups := map[string][]Check{}
	for _, c := range all {
		if c.Object != "" {
			groups[c.ID] = append(groups[c.ID], c)
		}
	}
	for _, c := range all {
		group := groups[c.ID]
		switch {
		case c.Object == "":
			out = append(out, c)
		case len(group) <= few: // also if the group is empty, because all its checks are already in out
			out = append(out, group...)
		default:
			out = append(out, shortened(group, most)...)
		}
		if c.Object != "" {
			delete(groups, c.ID)
		}
	}
	return out
}

func shortened(group []Check, most int) (out []Check) {
	line := func(of []Check, reason string, hint string) {
		if len(of) > 0 {
			c := of[0]
			c.Object, c.Reason, c.Hint = "", reason, hint
			out = append(out, c)
		}
	}
	by := map[Result][]Check{}
	var reasons []string
	unknown := map[string][]Check{}
	for _, c := range group {
		by[c.Result] = append(by[c.Result], c)
		if c.Result == Skipped {
			if unknown[c.Reason] == nil {
				reasons = append(reasons, c.Reason)
			}
			unknown[c.Reason] = append(unknown[c.Reason], c)
		}
	}
	line(by[OK], fmt.Sprintf("%d of %d", len(by[OK]), len(group)), "")
	bad := slices.Concat(by[Failed], by[Warning])
	shown := bad[:min(len(bad), most)]
	out = append(out, shown...)
	line(bad[len(shown):], fmt.Sprintf("and %d more that are not ok", len(bad)-len(shown)), "-o json has all")
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(len(unknown[b]), len(unknown[a])) })
	for _, reason := range reasons[:min(len(reasons), most)] {
		line(unknown[reason], fmt.Sprintf("%d of %d: %s", len(unknown[reason]), len(group), reason), unknown[reason][0].Hint)
	}
	return out
}
