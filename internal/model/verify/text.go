package verify

import (
	"fmt"
	"strings"
	"time"

	"outrider.dev/startup"
)

// String is the result as text.
func (r Result) String() string {
	var b strings.Builder
	switch {
	case r.Counterexample != nil:
		r.writeCounterexample(&b)
	case r.Holds():
		fmt.Fprintf(&b, "the plan's edges hold%s, with up to %s\n", r.Promise.when(), faults(r.Proved))
	case r.Proved >= 0:
		fmt.Fprintf(&b, "the plan's edges hold%s, with up to %s; with %d not all states were explored: cut short by %s\n",
			r.Promise.when(), faults(r.Proved), r.Proved+1, r.CutShort)
	default:
		fmt.Fprintf(&b, "nothing found, but not all states were explored: cut short by %s\n", r.CutShort)
	}
	fmt.Fprintf(&b, "explored: %d states, %d steps, %d events deep, in %s\n", r.States, r.Steps, r.Depth, r.Took.Round(time.Millisecond))
	fmt.Fprintf(&b, "bound: %s\n", r.Bound)
	for _, l := range r.Omitted {
		fmt.Fprintf(&b, "left out: %s\n", l)
	}
	return b.String()
}

func (r Result) writeCounterexample(b *strings.Builder) {
	for _, v := range r.Violations {
		fmt.Fprintf(b, "broken: %s: %s\n", v.Edge, howLong(v))
	}
	if len(r.Faults) > 0 {
		fmt.Fprintf(b, "faults: %s\n", strings.Join(r.Faults, "; "))
	}
	fmt.Fprintf(b, "%s", r.Counterexample)
}

func howLong(v startup.Violation) string {
	if v.By == startup.Forever {
		return string(v.How)
	}
	return fmt.Sprintf("%s, by %s", v.How, v.By)
}

func (p Promise) when() string {
	if p == Stops {
		return " when the pod stops"
	}
	return " at every start"
}

func faults(n int) string {
	if n == 1 {
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", n)
}

// String is the bound as text.
func (b Bound) String() string {
	s := faults(b.Faults)
	if len(b.Only) > 0 {
		s += fmt.Sprintf(" of %v", b.Only)
	}
	if b.Settled {
		s += " once every container has run"
	}
	if b.Depth > 0 {
		s += fmt.Sprintf(", %d events", b.Depth)
	}
	return s + fmt.Sprintf(", %d states, %s", b.States, b.Time)
}
