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

// Check refuses unknown codes, and replaces old names of codes. The notes are about these, and about codes that
// lint no longer uses, which select nothing.
func (f *Filter) Check() (notes []string, err error) {
	for _, codes := range [][]string{f.Only, f.Skip} {
		for i, name := range codes {
			code, note := finding.Present(name)
			if note != "" {
				notes = append(notes, note)
			}
			if code == "" {
				continue
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
