package xds

import (
	"testing"

	"outrider.dev/test/mutants"
)

// Limits count what a client has now, not what it has had.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestNamesAreGivenBack", map[string]mutants.Mutant{
		"the names of a stream are kept": {File: "limits.go", From: `p.names -= c.counted`, To: ``},
	})
}
