package lint

import (
	"slices"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint/kinds"
)

// A Filter selects findings.
type Filter struct {
	Severity   finding.Severity // lowest severity that is selected
	Only, Skip []string         // codes; empty Only: all
}

// Check replaces old names of codes in f by the present ones, and fails for unknown codes. The notes name the
// replaced codes, and codes that lint no longer reports.
func (f *Filter) Check() (notes []string, err error) {
	for _, codes := range [][]string{f.Only, f.Skip} {
		for i, name := range codes {
			code, note := finding.Present(name)
			if note != "" {
				notes = append(notes, note)
				if code == "" {
					continue // a code that lint no longer reports
				}
			}
			if _, err := kinds.Of(string(code)); err != nil {
				return nil, err
			}
			codes[i] = string(code)
		}
	}
	return notes, nil
}

// Selects reports whether a finding is selected.
func (f Filter) Selects(x finding.Finding) bool {
	code := string(x.Code)
	return x.Severity.AtLeast(f.Severity) && (len(f.Only) == 0 || slices.Contains(f.Only, code)) && !slices.Contains(f.Skip, code)
}
