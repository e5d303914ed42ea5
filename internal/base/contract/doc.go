// Package contract holds what the parts of Outrider must agree on because they meet only in a pod or on its
// network: names of containers and volumes, ports, paths, annotations and labels. Injection writes them,
// the agent uses them, and lint and the control plane recognise them.
//
// Names taken from Istio keep their meaning there. The package imports only the standard library.
package contract
