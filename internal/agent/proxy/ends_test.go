package proxy

import (
	"fmt"
	"slices"
	"testing"
)

// However deep Envoy was when it crashed, what happened is among the lines that are shown.
func TestShownTailSaysWhatHappened(t *testing.T) {
	lines := []string{`{"component":"backtrace","message":"Caught Segmentation fault, suspect faulting address 0x0"}`}
	for i := range 64 {
		lines = append(lines, fmt.Sprintf(`{"component":"backtrace","message":"#%d: [0x55adf8f26724]"}`, i))
	}
	if got := shownTail(append([]string{"listener #1 added"}, lines...)); !slices.Equal(got, []string{"listener #1 added", lines[0]}) {
		t.Errorf("shown: %q", got)
	}
	if got := shownTail(slices.Repeat([]string{"a line"}, 100)); len(got) != shown {
		t.Errorf("%d lines of 100 are shown", len(got))
	}
}
