package main

import (
	"strings"
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryForm(t *testing.T) {
	rows := []string{"resident memory at most"}
	for _, f := range forms {
		rows = append(rows, f.name+" ")
	}
	if out := benchtest.Run(run).Measures(t, []string{"-mb=2", "-dir=" + t.TempDir()}, rows...); strings.Contains(out, " 0\n") {
		t.Errorf("no hits in\n%s", out)
	}
}

func TestBadUsage(t *testing.T) { benchtest.Run(run).Refuses(t, "-mb=0") }
