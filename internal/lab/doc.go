// Package lab runs a pod without a cluster: as processes of this machine, by the kubelet's rules, with
// volumes, probes and hooks. It promises to do what a kubelet would do, as far as recordings of real
// kubelets tell.
//
// Its packages:
//   - localpod: the processes of a pod
//   - outside: the view of them that a cluster would have, for diagnose
//   - demo: the stories that `outrider demo` tells
//
// It imports base, core and doctor.
package lab
