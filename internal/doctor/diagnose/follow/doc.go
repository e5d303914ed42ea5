// Package follow watches pods and diagnoses them as they change: when one becomes ready, when one of
// its containers restarts or fails, and when it is not ready after a while. [Follow] says each
// diagnosis once, and for a workload ends when its roll-out is complete.
//
// An informer of client-go keeps the state of the pods; it begins again by itself where a watch ends,
// also when the API server has forgotten where it was (410). Of each pod only what tells the changes
// is kept. A few pods at a time are read whole and diagnosed, so that 10,000 need no more than a few.
//
// Where to read:
//
//	follow.go   what is watched, and when it ends
//	state.go    what of a pod is kept, and when it is to be diagnosed
//	rollout.go  when a roll-out is complete
//	line.go     what is said, as text and as JSON
package follow
