// Package follow watches pods and diagnoses them as they change: when a pod becomes ready, when one of
// its containers restarts or fails, and when it is still not ready after a while. [Follow] reports each
// diagnosis once. For a workload it ends when the roll-out is complete.
//
// An informer of client-go caches the state of the pods. It restarts a watch that ends, also when its
// resource version is too old for the API server (410). Of each pod only the fields that reveal a
// change are cached. Few pods at a time are read whole and diagnosed, so that memory does not grow with
// the size of the fleet (10,000 pods).
//
// Where to read:
//
//	follow.go   what is watched, and when it ends
//	state.go    which fields of a pod are cached, and when it is to be diagnosed
//	rollout.go  when a roll-out is complete
//	line.go     what is reported, as text and as JSON
package follow
