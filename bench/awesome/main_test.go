package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunMeasuresEveryWay(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-n=1", "-root=../..", "-languages=go"}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	ways, end, err := centres()
	if err != nil {
		t.Fatal(err)
	}
	end()
	for _, w := range ways {
		if !strings.Contains(out.String(), "go, "+w.name+" ") {
			t.Errorf("no row %q in\n%s", w.name, &out)
		}
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-n=0"}, {"-languages=go,rust"}, {"more"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
