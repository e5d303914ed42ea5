// Package harness runs a small mesh on one machine with the real programs: outriderd with a
// folder of manifests, and for each pod a network namespace with capture, in which the
// agent and Envoy run as separate processes under the same users as in a cluster.
//
// All processes and files of a world are removed at the end of the test that made it.
package harness

// Users of a pod.
const (
	ProxyUser = 1337
	AppUser   = 1000
)

// Namespace is the namespace of all pods in a world; each pod has a service account with its own name.
const Namespace = "shop"

// Addresses of control planes.
const (
	PlaneAddress  = "10.0.0.1"
	planeAddress6 = "fd00::1"
	otherPlane    = "10.0.0.2" // the second control plane
	frontAddress  = "10.0.0.3" // the Service in front of both control planes
	PlaneName     = "outriderd.test"
	Discovery     = PlaneAddress + ":15012"
	planeHTTP     = PlaneAddress + ":15014"
)
