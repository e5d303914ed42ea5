package cgroup_test

import (
	"testing"

	"outrider.dev/test/cluster/internal/cgroup"
)

func TestRemoveRefusesWhatIsNoGroupOfACluster(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../memory"} {
		if err := cgroup.Remove(t.Context(), name); err == nil {
			t.Errorf("Remove(%q) did not refuse", name)
		}
	}
}
