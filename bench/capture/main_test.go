package main

import (
	"bytes"
	"strings"
	"testing"

	"outrider.dev/test/ns"
)

// The hand-written rules can be loaded and capture the measured connections, and every case has a row.
func TestRunMeasuresEveryWay(t *testing.T) {
	ns.RequireRoot(t)
	var out bytes.Buffer
	if err := measure(1, []int{0, 20}, "", &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"by hand, 0 entries ", "capture, 20 entries ", "limit 5s, until refused "} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
	nftables, _, found := strings.Cut(out.String(), "\niptables-nft\n")
	if !found || strings.Contains(nftables, "cannot run") {
		t.Errorf("nftables must run, and iptables follow:\n%s", &out)
	}
}
