package main

import (
	"bytes"
	"strings"
	"testing"
)

// The control plane serves all the proxies that are measured: none is over a limit.
func TestRunMeasuresEverySetting(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-divide=10", "-storms=1", "-changes=1", "-idle=1ms"}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	for _, setting := range settings(10) {
		if !strings.Contains(out.String(), setting.String()) {
			t.Errorf("no row for %q in\n%s", setting, &out)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-divide=0"}, {"-divide=11"}, {"-storms=0"}, {"-changes=0"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
