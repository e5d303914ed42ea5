package main

import (
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryFormat(t *testing.T) {
	benchtest.Run(run).Measures(t, []string{"-pods=30", "-runs=2"}, "\nhtml ", "\ntext ", "\njson ")
}

func TestBadUsage(t *testing.T) { benchtest.Run(run).Refuses(t, "-pods=0", "-runs=0") }
