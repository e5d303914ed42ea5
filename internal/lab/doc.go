// Package lab runs a pod without a cluster: as processes of this machine, by the kubelet's rules, with
// volumes, probes and hooks. It promises that what is shown there is what a kubelet would do, as far
// as its traces say.
//
// Its doors:
//   - localpod: the processes of a pod
//   - outside: what a cluster would have shown of them, for diagnose
//   - demo: the stories that `outrider demo` tells
//
// It imports base, core and doctor.
package lab
