package main

import (
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryWay(t *testing.T) {
	ways, end, err := centres()
	if err != nil {
		t.Fatal(err)
	}
	end()
	var rows []string
	for _, w := range ways {
		rows = append(rows, "go, "+w.name+" ")
	}
	benchtest.Run(run).Measures(t, []string{"-n=1", "-root=../..", "-languages=go"}, rows...)
}

func TestBadUsage(t *testing.T) { benchtest.Run(run).Refuses(t, "-n=0", "-languages=go,rust") }
