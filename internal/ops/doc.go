// Package ops has the packages that operate an installation from a user's machine. A dry run shows
// their changes beforehand. The packages wait until a change works, and undo it if it does not.
//
// The packages for commands:
//   - install: the release of the Helm chart, its upgrade and its removal
//   - check: checks of a cluster, before and after the installation
//   - report: versions and proxies of a mesh, and descriptions of pods
//   - podupgrade, podrestart: running pods get a new proxy, or leave the mesh
//   - rotate: rotation of the root certificate
//   - bugreport: an archive for maintainers
//
// They use kubeclient, which has kubectl's flags, port forwarding, and waits for objects, and replicas,
// which sends requests to each replica of a control plane.
//
// The packages import base and core. Helm's library is only used here, so that it is in no program that
// runs in pods or on nodes.
package ops
