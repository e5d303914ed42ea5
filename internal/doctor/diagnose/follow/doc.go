// Package follow watches pods and diagnoses them as they change: when a pod becomes ready, when one of
// its containers restarts or fails, and when it is still not ready after a while. [Follow] reports each
// diagnosis once. For a workload it ends when the roll-out is complete.
//
// An informer of client-go caches the state of the pods. It restarts a watch that ends, also when its
// resource version is too old for the API server (410). Of each pod only the fields that reveal a
// change are cached. Only a few pods at a time are read completely and diagnosed. So the memory stays
// small for a fleet of 10,000 pods.
//
// Where to read:
//
//	follow.go   the watches, the queue of pods to diagnose, and the end
//	state.go    the cached fields of a pod, and when the pod is to be diagnosed
//	rollout.go  the progress of a roll-out
//	line.go     a reported line, as text and as JSON
package follow
