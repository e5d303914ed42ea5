// Package podrun describes a pod as it will run. [Of] adds the containers that injection would add, and writes
// the requested order. [Lifecycle] translates the pod for the model of the kubelet, and [Unmodelled] lists what
// that model does not support.
//
// The simulator, the verifier and "outrider run" all use this package, so that they run the same pod.
package podrun
