// Package benchtest calls a measurement as its user does.
package benchtest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A Run is a measurement's main without the process.
type Run func(args []string, stdout, stderr io.Writer) (status int)

// Measures fails the test where a text is in no row. It returns what was printed.
func (run Run) Measures(t *testing.T, args []string, rows ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	if status := run(args, &out, &problems); status != 0 {
		t.Fatalf("status %d: %s", status, &problems)
	}
	for _, row := range rows {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, &out)
		}
	}
	return out.String()
}

// Refuses fails the test where an argument is not refused as bad usage.
func (run Run) Refuses(t *testing.T, arguments ...string) {
	for _, arg := range append(arguments, "more", "-unknown") {
		if status := run([]string{arg}, io.Discard, io.Discard); status != 2 {
			t.Errorf("%s: status %d", arg, status)
		}
	}
}
