package main

import (
	"bytes"
	"strings"
	"testing"

	"outrider.dev/test/ns"
)

// The rules by hand load, capture the connections that are measured, and no row is missing.
func TestRunMeasuresEveryWay(t *testing.T) {
	ns.RequireRoot(t)
	var out, problems bytes.Buffer
	if code := run([]string{"-n=1", "-entries=0,20"}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	nftables, _, found := strings.Cut(out.String(), "\niptables-nft\n")
	if !found || strings.Contains(nftables, "cannot run") {
		t.Errorf("nftables must run, and iptables follow:\n%s", &out)
	}
	for _, row := range []string{"by hand, 0 entries ", "capture, 20 entries ", "limit 5s, until refused "} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-n=0"}, {"-entries=10001"}, {"-entries=x"}, {"-entries="}, {"more"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
