package kube

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	e2e "outrider.dev/test/e2e/world"
)

const root = "../.." // root of the repository

// TestMain brings a cluster up and starts this test again inside it, because the API server is reachable only from
// inside. A cluster that "cluster run" has started must have the features below.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("OUTRIDER_E2E") != "1" || e2e.Inside() {
		os.Exit(m.Run())
	}
	dir, err := filepath.Abs(root)
	if err != nil {
		panic(err)
	}
	os.Exit(e2e.Enter(e2e.Options{Root: dir, Version: os.Getenv("KUBE"), Runtime: os.Getenv("RUNTIME"), Name: "kube", Progress: os.Stderr,
		Features: []string{"ClusterTrustBundle", "ClusterTrustBundleProjection"}, APIs: []string{"certificates.k8s.io/v1beta1/clustertrustbundles"}}))
}
