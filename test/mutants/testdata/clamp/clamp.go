// Package clamp is the code that the test of package mutants mutates.
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
