// Package podrun describes a pod as it will run: [Of] gives it the containers that injection adds and the
// order that it requests, [Lifecycle] translates it for the model of the kubelet, and [Unmodelled] lists what
// that model leaves out.
//
// The simulator, the verifier and the local run take the pod from here, so that all of them run the same.
package podrun
