package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out, errs strings.Builder
	if status := run([]string{"-n", "1", "-pods", "1", "-o", "json"}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var rows []row
	if err := json.Unmarshal([]byte(out.String()), &rows); err != nil || len(rows) != len(cases) {
		t.Fatalf("%v, %d rows, want %d", err, len(rows), len(cases))
	}
	for _, r := range rows {
		if r.N != 1 || r.Min <= 0 || r.Min != r.Max || r.Allocs <= 0 {
			t.Errorf("%+v", r)
		}
	}
	out.Reset()
	if err := write(&out, "text", rows); err != nil || !strings.Contains(out.String(), cases[0].name) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestWhatCannotBeUsed(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-pods", "0"}, {"-o", "png"}, {"more"}, {"--nothing"}} {
		var out, errs strings.Builder
		if status := run(args, &out, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("%v: status %d, %q", args, status, errs.String())
		}
	}
}
