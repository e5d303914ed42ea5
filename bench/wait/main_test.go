package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestARunMeasuresEveryCase(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-n=2", "-polls=1", "-starts=1", "-o=json"}, &out, &problems); code != 0 {
		t.Fatalf("status %d: %s", code, &problems)
	}
	var rows []row
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatal(err)
	}
	var n []int
	for _, r := range rows {
		n = append(n, r.N)
		if r.Case == "" || r.Min <= 0 || r.Max < r.Min {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff([]int{2, 2, 1, 1, 1}, n); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestRanks(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i)*time.Millisecond)
	}
	want := row{"a", 200, 1, 100, 198, 200}
	if diff := cmp.Diff(want, rowOf("a", times)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"-n=0"}, {"-o=xml"}, {"more"}, {"-unknown"}} {
		if code := run(args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}
