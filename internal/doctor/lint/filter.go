package lint

import (
	"slices"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint/kinds"
)

// A Filter selects findings.
type Filter struct {
	Severity   finding.Severity // least severity
	Only, Skip []string         // codes; empty Only: all
}

// Check refuses unknown codes. For codes that lint no longer uses it returns notes: they select nothing.
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
