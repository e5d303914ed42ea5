package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out, errs strings.Builder
	if status := run([]string{"-n", "1", "-o", "json"}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var r report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(cases) {
		t.Fatalf("%d rows, want %d", len(r.Rows), len(cases))
	}
	for _, row := range r.Rows {
		if row.N != 1 || row.Min <= 0 || row.Min != row.Max || row.Each == "" {
			t.Errorf("%+v", row)
		}
	}
	out.Reset()
	if err := r.write(&out, "text"); err != nil || !strings.Contains(out.String(), "verify: a gate, 4 faults") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestWhatCannotBeUsed(t *testing.T) {
	for _, args := range [][]string{{"-n", "0"}, {"-o", "png"}, {"more"}, {"--nothing"}} {
		var out, errs strings.Builder
		if status := run(args, &out, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("%v: status %d, %q", args, status, errs.String())
		}
	}
}
