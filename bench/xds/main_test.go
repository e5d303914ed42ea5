package main

import (
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

// The control plane serves all the proxies that are measured: none is over a limit.
func TestRunMeasuresEverySetting(t *testing.T) {
	var rows []string
	for _, setting := range settings(10) {
		rows = append(rows, setting.String())
	}
	benchtest.Run(run).Measures(t, []string{"-divide=10", "-storms=1", "-changes=1", "-idle=1ms"}, rows...)
}

func TestBadUsage(t *testing.T) {
	benchtest.Run(run).Refuses(t, "-divide=0", "-divide=11", "-storms=0", "-changes=0")
}
