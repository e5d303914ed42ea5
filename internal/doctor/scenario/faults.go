package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/verify"
)

// FaultNames returns the names of the kinds of faults.
func FaultNames() (out []string) {
	for _, f := range verify.Faults {
		out = append(out, string(f.Fault))
	}
	return out
}

// FaultForms returns a text that explains the kinds of faults, one per line.
func FaultForms() string {
	var b strings.Builder
	for _, f := range verify.Faults {
		fmt.Fprintf(&b, "%-8s %s\n", f.Fault, f.Means)
	}
	return b.String()
}

// NewBound validates the bound b, and adds the kinds of faults to try, by their names. It fails for an invalid
// value; the error names the flag of "outrider verify".
func NewBound(b verify.Bound, only []string) (verify.Bound, error) {
	switch {
	case b.Faults < 0 || b.Faults > 100:
		return b, fmt.Errorf("--faults=%d: must be 0 to 100", b.Faults)
	case b.States < 1:
		return b, fmt.Errorf("--states=%d: must be at least 1", b.States)
	case b.Time <= 0:
		return b, fmt.Errorf("--time=%s: must be positive, like 30s", b.Time)
	}
	for _, name := range only {
		if !slices.Contains(FaultNames(), name) {
			return b, fmt.Errorf("--only=%q: must be one of %s", name, strings.Join(FaultNames(), ", "))
		}
		b.Only = append(b.Only, verify.Fault(name))
	}
	b.Faults = cmp.Or(b.Faults, -1) // for package verify, 0 means the default
	return b, nil
}
