// Package clamp is a package with rules, for the test of package mutants.
package clamp

type bound struct{ low, high int }

var calls int

func clamp(n int, b *bound) int {
	calls++
	if b == nil || b.low > b.high {
		return n
	}
	if b.high == b.low {
		return b.low
	}
	return min(max(n, b.low), b.high)
}
