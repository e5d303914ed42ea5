package kubelet

import "time"

// A Version is what differs between kubelets. A row of the table can be changed
// by hand, for a cluster with other feature gates.
type Version struct {
	Minor int

	// Sidecars: an init container with restartPolicy Always is a native sidecar.
	Sidecars bool

	// Relist is how often the kubelet looks which containers have ended; it looks
	// at whole multiples of it. 0: it sees each end at once.
	Relist time.Duration

	// FreshAtOnce: after a pass that did something, without a failure, the kubelet
	// looks again at once. Else the next pass waits for the next relist, whatever
	// requests it.
	FreshAtOnce bool

	// KeepsStarted: the phase depends on the sidecar's start in the previous status. Else a sidecar counts as not started until an app runs.
	KeepsStarted bool

	// StaysInitialized: the condition Initialized of a pod never becomes false again.
	StaysInitialized bool

	// ContainerRestart: any container may have a restart policy of its own.
	ContainerRestart bool

	// ExactRetry: a pass that met a container in back-off is repeated when the
	// back-off ends. Else after Retry, which adds to it.
	ExactRetry bool
}

// versions is the table, oldest first; a version is like the last row not newer
// than it.
//
// Sources: SidecarContainers, ContainerRestartRules, PLEGOnDemandRelist,
// ChangeContainerStatusOnKubeletRestart and RestartAllContainersOnContainerExits
// (status/generate.go GeneratePodInitializedCondition) in
// pkg/features/kube_features.go of v1.36.3; genericPlegRelistPeriod in kubelet.go;
// podCache.GetNewerThan in pod_workers.go; MinBackoffExpiration (kubernetes#133066),
// which v1.34.4 lacks and v1.36.3 has, and which came too late for 1.34.
// FreshAtOnce agrees with what was measured: v1.34.4 starts the app 0.92 s after
// the hook of a native sidecar, v1.36.3 0.10 s; after a startup probe 1.89 s and
// 0.89 s.
var versions = []Version{
	{Minor: 28, Relist: time.Second},
	{Minor: 29, Relist: time.Second, Sidecars: true},
	{Minor: 35, Relist: time.Second, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true},
	{Minor: 36, Relist: time.Second, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true, FreshAtOnce: true, StaysInitialized: true},
}

// Oldest and Newest bound what the table was made for.
const (
	Oldest = 28
	Newest = 36
)

// Minor returns the version of Kubernetes 1.minor, with its default feature
// gates. Outside Oldest and Newest it returns the nearest one.
func Minor(minor int) Version {
	minor = min(max(minor, Oldest), Newest)
	v := versions[0]
	for _, row := range versions {
		if row.Minor <= minor {
			v = row
		}
	}
	v.Minor = minor
	return v
}

// relistAfter is when the kubelet sees what happens at t.
func (v Version) relistAfter(t time.Duration) time.Duration {
	if v.Relist <= 0 {
		return t
	}
	return (t/v.Relist + 1) * v.Relist
}
