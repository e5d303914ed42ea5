// Package lab runs a pod without a cluster: as processes of this machine, by the kubelet's rules, with volumes,
// probes and hooks. It does what a kubelet would do; its model of the kubelet is compared with recordings of real
// ones.
//
// Its packages:
//   - localpod: the processes of a pod
//   - outside: the status and logs of the pod, as an operator of a cluster would get them, for diagnose
//   - demo: the acts of `outrider demo`
//
// It imports base, core and doctor.
package lab
