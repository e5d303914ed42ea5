// Package harness makes a small mesh on one machine, of the real parts: outriderd with a
// folder of manifests, pods as network namespaces with capture, and in each of them the
// agent with its Envoy, as the processes and users of a cluster.
//
// Everything a world starts or writes ends with the test that made it.
package harness

// Users of a pod.
const (
	ProxyUser = 1337
	AppUser   = 1000
)

// Namespace is where the pods of a world are; each has the service account of its name.
const Namespace = "shop"

// Where the control plane is reached, and how it is called.
const (
	PlaneAddress  = "10.0.0.1"
	planeAddress6 = "fd00::1"
	otherPlane    = "10.0.0.2" // of a second control plane
	frontAddress  = "10.0.0.3" // of both
	PlaneName     = "outriderd.test"
	Discovery     = PlaneAddress + ":15012"
	planeHTTP     = PlaneAddress + ":15014"
)
