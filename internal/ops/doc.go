// Package ops operates an installation from a person's machine. It promises that what it changes can
// be seen before, is watched until it works, and is taken back if it does not.
//
// Its doors:
//   - install: the release of the Helm chart, its upgrade and its removal
//   - check: what is ready in a cluster, and what is wrong
//   - report: versions and proxies of a mesh, and one pod described
//   - podupgrade, podrestart: running pods get a new proxy, or leave the mesh
//   - rotate: the root certificate is replaced
//   - bugreport: an archive for maintainers
//
// Below them are kubeclient, with kubectl's flags, forwarded ports, and the waits for objects, and
// replicas, which asks each replica of a control plane.
//
// It imports base and core. Kubernetes' clients and Helm's library are here, and not in what runs in
// pods or on nodes.
package ops
