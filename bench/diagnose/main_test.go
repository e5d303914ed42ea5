package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunMeasuresEveryFormat(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-pods=30", "-runs=2"}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	for _, format := range []string{"html", "text", "json"} {
		if !strings.Contains(out.String(), "\n"+format+" ") {
			t.Errorf("no row %q in\n%s", format, &out)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-pods=0"}, {"-runs=0"}, {"more"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
