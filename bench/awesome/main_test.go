package main

import (
	"io"
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
	benchtest.Measures(t, func(stdout io.Writer) error { return measure(1, "../..", []string{"go"}, stdout) }, rows...)
}
