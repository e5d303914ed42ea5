package main

import (
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryWay(t *testing.T) {
	var rows []string
	for _, w := range ways {
		rows = append(rows, w.name+" ")
	}
	benchtest.Run(run).Measures(t, []string{"-n=1", "-polled=1"}, rows...)
}

func TestBadUsage(t *testing.T) { benchtest.Run(run).Refuses(t, "-n=0", "-polled=0") }
