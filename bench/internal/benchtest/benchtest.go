// Package benchtest looks at what a measurement prints.
package benchtest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// Measures measures, and fails the test where a text is in no row. It returns what was printed.
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
