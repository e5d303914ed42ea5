// Package core is the mesh itself: the parts that run in pods, on nodes and as control plane. It ensures that
// containers start and stop in the declared order, that early connections wait, and that a proxy is ready in
// a time that does not depend on the size of the mesh.
//
// Its folders:
//   - capture: the rules of the kernel that redirect a pod's connections to its proxy
//   - agent: the proxy's parent process and the gates of the other containers
//   - node: plugins of the node that set up capture and gates from outside of the pod
//   - pod: a pod's containers, the kubelet's work on them, and their injection
//   - mesh: services, workloads, routes and policies as values, and their snapshots, made from Kubernetes
//     objects
//   - xds: the discovery service, and the conversion of a mesh to Envoy's resources
//   - controlplane: outriderd, which serves configuration to agents, and injects pods for the API server
//
// It imports base, and the package startup, which contains the order of starts as pure functions. It must not
// import any other wing: wings that explain, operate or simulate a mesh can be left out of a build.
package core
