package scenario

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/model/verify"
)

// meanings explain the kinds of faults.
var meanings = map[verify.Fault]string{
	verify.NoImage:   "a pull fails",
	verify.NoStart:   "the runtime cannot start a container",
	verify.BadHook:   "a postStart or preStop fails",
	verify.BadProbe:  "a probe fails although its container is healthy",
	verify.Unhealthy: "a healthy container no longer is",
	verify.Crash:     "a container ends by itself",
	verify.Kill:      "a container ends by SIGKILL, and leaves a stale state behind",
	verify.NoSandbox: "the sandbox dies, or cannot be made",
}

// FaultNames are the words for the kinds of faults.
func FaultNames() []string {
	var out []string
	for _, f := range verify.Faults {
		out = append(out, string(f))
	}
	return out
}

// FaultForms explains the kinds of faults, one in a line.
func FaultForms() string {
	var b strings.Builder
	for _, f := range verify.Faults {
		fmt.Fprintf(&b, "%-8s %s\n", f, meanings[f])
	}
	return b.String()
}

// NewBound refuses bounds that make no sense, and completes them with the faults to try. An
// error names the flag of "outrider verify".
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
		if !slices.Contains(verify.Faults, verify.Fault(name)) {
			return b, fmt.Errorf("--only=%q: must be one of %s", name, strings.Join(FaultNames(), ", "))
		}
		b.Only = append(b.Only, verify.Fault(name))
	}
	if b.Faults == 0 {
		b.Faults = -1 // 0 is the default of package verify
	}
	return b, nil
}
