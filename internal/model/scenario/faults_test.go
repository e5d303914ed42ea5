package scenario

import (
	"testing"

	"outrider.dev/internal/model/verify"
)

func TestEveryFaultIsExplained(t *testing.T) {
	for _, f := range verify.Faults {
		if meanings[f] == "" {
			t.Errorf("%q has no explanation", f)
		}
	}
}
