package main

import (
	"io"
	"testing"
	"time"

	"outrider.dev/bench/internal/benchtest"
	"outrider.dev/bench/internal/figures"
)

// The control plane serves every measured proxy: no limit refuses one.
func TestRunMeasuresEverySetting(t *testing.T) {
	var rows []string
	for _, setting := range settings(10) {
		rows = append(rows, setting.String())
	}
	b := &bench{table: &figures.Table{}, storms: 1, changes: 1, idle: time.Millisecond}
	benchtest.Measures(t, func(stdout io.Writer) error { return b.all(settings(10), stdout) }, rows...)
}
