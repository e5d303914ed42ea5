// Package core is the mesh itself: what runs in pods, on nodes and as control plane. It promises that
// containers start and stop in the declared order, that early connections wait, and that a proxy is
// ready in a time that does not depend on the size of the mesh.
//
// Its rooms:
//   - capture: the rules of the kernel that bring a pod's connections to its proxy
//   - agent: the proxy's parent process and the gates of the other containers
//   - node: capture and gates from outside of the pod, by plugins of the node
//   - pod: what a pod is, what the kubelet does with it, and what injection makes of it
//   - mesh: services, workloads, routes and policies as values; their snapshots, made of Kubernetes' objects
//   - xds: the discovery service, and a mesh as Envoy's resources
//   - controlplane: outriderd, which serves these to agents and pods to the API server
//
// It imports base and the package startup, which has the idea in pure functions. No other wing may be
// imported: whatever explains, operates or plays a mesh can be left out of a build.
package core
