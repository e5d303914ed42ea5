package cluster

import (
	"io"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/evidence"
)

// A log ends at its limit without an error, even if the API server sends more.
func TestALogEndsAtItsLimit(t *testing.T) {
	log := &evidence.Log{}
	text, err := io.ReadAll(&limited{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("line\n", 100))), log: log, left: 12})
	if err != nil || string(text) != "line\nline\nli" || !log.Truncated {
		t.Errorf("%q, %v, truncated %v", text, err, log.Truncated)
	}
}
