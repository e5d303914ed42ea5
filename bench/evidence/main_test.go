package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunMeasuresEveryForm(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-mb=2", "-dir=" + t.TempDir()}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	for _, f := range forms {
		if !strings.Contains(out.String(), f.name+" ") {
			t.Errorf("no row %q in\n%s", f.name, &out)
		}
	}
	if strings.Contains(out.String(), " 0\n") || !strings.Contains(out.String(), "resident memory at most") {
		t.Errorf("no hits, or no memory, in\n%s", &out)
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-mb=0"}, {"more"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
