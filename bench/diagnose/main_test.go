package main

import (
	"io"
	"testing"

	"outrider.dev/bench/internal/benchtest"
)

func TestRunMeasuresEveryFormat(t *testing.T) {
	benchtest.Measures(t, func(stdout io.Writer) error { return measure(30, 2, stdout) }, "\nhtml ", "\ntext ", "\njson ")
}
