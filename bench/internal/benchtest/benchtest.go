// Package benchtest checks the output of a measurement.
package benchtest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// Measures runs measure and returns its output. It fails the test if one of rows is in no row of the
// output.
func Measures(t *testing.T, measure func(stdout io.Writer) error, rows ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := measure(&out); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
	return out.String()
}
