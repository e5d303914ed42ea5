package xds

import (
	"testing"

	"outrider.dev/test/mutants"
)

// Limits are of what a client has, not of what it has had.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestNamesAreGivenBack", map[string]mutants.Mutant{
		"the names of a stream are kept": {File: "limits.go", From: `p.names -= c.counted`, To: ``},
	})
}
