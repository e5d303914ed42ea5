package lint

import (
	"slices"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint/kinds"
)

// A Filter selects findings.
type Filter struct {
	Severity   finding.Severity // the least severe
	Only, Skip []string         // codes; no Only: all
}

// Check refuses codes that do not exist. The notes are about those that lint had once: nothing is found
// under them.
func (f Filter) Check() (notes []string, err error) {
	for _, code := range slices.Concat(f.Only, f.Skip) {
		if note := kinds.Gone(code); note != "" {
			notes = append(notes, note)
		} else if _, err := kinds.Of(code); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// Selects reports whether a finding is selected.
func (f Filter) Selects(x finding.Finding) bool {
	code := string(x.Code)
	return x.Severity.AtLeast(f.Severity) && (len(f.Only) == 0 || slices.Contains(f.Only, code)) && !slices.Contains(f.Skip, code)
}
