package proxy

import (
	"slices"
	"testing"
)

// However deep Envoy was when it crashed, what happened is among the lines that are shown.
func TestShownTailSaysWhatHappened(t *testing.T) {
	before := []string{"listener #1 added", `{"component":"backtrace","message":"Caught Segmentation fault, suspect faulting address 0x0"}`}
	frames := slices.Repeat([]string{`{"component":"backtrace","message":"#12: [0x55adf8f26724]"}`}, 64)
	if got := shownTail(slices.Concat(before, frames)); !slices.Equal(got, before) {
		t.Errorf("shown: %q", got)
	}
	if got := shownTail(slices.Repeat([]string{"a line"}, 100)); len(got) != shown {
		t.Errorf("%d lines of 100 are shown", len(got))
	}
}
