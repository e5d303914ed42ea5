package diagnose

import "outrider.dev/internal/doctor/evidence"

// Instant is a time in words, no finer than it is known.
func Instant(t evidence.Time) string { return instant(t) }

// Since is the time from one instant to another in words, as a timeline has it; empty if they are of
// different clocks.
func Since(t, from evidence.Time) string {
	least, most, ok := t.Since(from)
	if !ok {
		return ""
	}
	return offset(least, most)
}
