package controlplane

import (
	"testing"
)

func TestASecretNeedsACluster(t *testing.T) {
	err := Run(t.Context(), Options{Folder: t.TempDir(), CASecret: "outrider-ca"})
	if err == nil || err.Error() != "CASecret: a Secret needs a cluster" {
		t.Errorf("Run = %v", err)
	}
}
