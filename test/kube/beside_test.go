package kube

import "testing"

// These wait for the cluster most of their time, and do not disturb one another: of the tests with
// replicas of outriderd one alone has the shared authority, and none judges the status of routes.
func TestBesideEachOther(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"tokens are reviewed":             tokensAreReviewed,
		"certificates end with their pod": certificatesEndWithTheirPod,
		"the mesh is whole over a gap":    theMeshIsWholeOverAGap,
		"diagnoses are events":            diagnosesAreEvents,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}
