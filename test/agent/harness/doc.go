// Package harness runs a small mesh on one machine with the real programs: outriderd with a
// folder of manifests, pods as network namespaces with capture, and in each pod the
// agent with its Envoy, as the processes and users that they are in a cluster.
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

// Addresses and name of the control plane.
const (
	PlaneAddress  = "10.0.0.1"
	planeAddress6 = "fd00::1"
	otherPlane    = "10.0.0.2" // of a second control plane
	frontAddress  = "10.0.0.3" // of the Service in front of both
	PlaneName     = "outriderd.test"
	Discovery     = PlaneAddress + ":15012"
	planeHTTP     = PlaneAddress + ":15014"
)
