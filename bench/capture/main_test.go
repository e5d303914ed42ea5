package main

import (
	"io"
	"strings"
	"testing"

	"outrider.dev/bench/internal/benchtest"
	"outrider.dev/test/ns"
)

// The rules by hand load and capture the measured connections, and every way has its row.
func TestRunMeasuresEveryWay(t *testing.T) {
	ns.RequireRoot(t)
	out := benchtest.Measures(t, func(stdout io.Writer) error { return measure(1, []int{0, 20}, "", stdout) }, "by hand, 0 entries ", "capture, 20 entries ", "limit 5s, until refused ")
	nftables, _, found := strings.Cut(out, "\niptables-nft\n")
	if !found || strings.Contains(nftables, "cannot run") {
		t.Errorf("nftables must run, and iptables follow:\n%s", out)
	}
}
