package main

import (
	"io"
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryWay(t *testing.T) {
	var rows []string
	for _, w := range ways {
		rows = append(rows, w.name+" ")
	}
	benchtest.Measures(t, func(stdout io.Writer) error { return measure(1, 1, "", stdout) }, rows...)
}
