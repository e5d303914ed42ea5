package main

import (
	"strings"
	"testing"

	"outrider.dev/bench/internal/benchtest"
	"outrider.dev/test/ns"
)

// The rules by hand load, capture the connections that are measured, and no row is missing.
func TestRunMeasuresEveryWay(t *testing.T) {
	ns.RequireRoot(t)
	out := benchtest.Run(run).Measures(t, []string{"-n=1", "-entries=0,20"}, "by hand, 0 entries ", "capture, 20 entries ", "limit 5s, until refused ")
	nftables, _, found := strings.Cut(out, "\niptables-nft\n")
	if !found || strings.Contains(nftables, "cannot run") {
		t.Errorf("nftables must run, and iptables follow:\n%s", out)
	}
}

func TestBadUsage(t *testing.T) {
	benchtest.Run(run).Refuses(t, "-n=0", "-entries=10001", "-entries=x", "-entries=")
}
