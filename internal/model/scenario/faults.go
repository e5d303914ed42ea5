package scenario

import (
	"fmt"
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
