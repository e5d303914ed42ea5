package kubelet

import "time"

// A Version lists the differences between kubelets. A caller may change single fields, for a cluster with
// other feature gates.
type Version struct {
	Minor int

	// Sidecars: an init container with restartPolicy Always is a native sidecar.
	Sidecars bool

	// Relist is how often the kubelet looks which containers have ended, at whole multiples of it. 0: it
	// sees each end at once.
	Relist time.Duration

	// FreshAtOnce: after a pass that did something and had no failure, the kubelet looks at the containers
	// again at once. Otherwise the next pass waits for the next relist, whatever requests it.
	FreshAtOnce bool

	// KeepsStarted: a sidecar that was started in the previous status counts as started for the phase.
	// Otherwise a sidecar counts as not started until an app runs.
	KeepsStarted bool

	// StaysInitialized: the condition Initialized of a pod never becomes false again.
	StaysInitialized bool

	// ContainerRestart: any container may have a restart policy of its own.
	ContainerRestart bool

	// ExactRetry: a pass that met a container in back-off is repeated when the back-off ends. Otherwise it
	// is repeated after Retry, which adds to the delay.
	ExactRetry bool
}

// versions lists the differences, oldest version first. A version that has no row of its own is like the
// last row before it.
//
// Sources: SidecarContainers, ContainerRestartRules, PLEGOnDemandRelist,
// ChangeContainerStatusOnKubeletRestart and RestartAllContainersOnContainerExits (status/generate.go
// GeneratePodInitializedCondition) in pkg/features/kube_features.go of v1.36.3; genericPlegRelistPeriod in
// kubelet.go; podCache.GetNewerThan in pod_workers.go; MinBackoffExpiration (kubernetes#133066), which
// v1.34.4 lacks and v1.36.3 has, and which came too late for 1.34. FreshAtOnce agrees with the measurements:
// v1.34.4 starts the app 0.92 s after the hook of a native sidecar, v1.36.3 0.10 s; after a startup probe
// 1.89 s and 0.89 s.
var versions = []Version{
	{Minor: 28, Relist: time.Second},
	{Minor: 29, Relist: time.Second, Sidecars: true},
	{Minor: 35, Relist: time.Second, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true},
	{Minor: 36, Relist: time.Second, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true, FreshAtOnce: true, StaysInitialized: true},
}

// Oldest and Newest are the first and the last minor version that the table covers.
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

// relistAfter returns when the kubelet sees what happens at t.
func (v Version) relistAfter(t time.Duration) time.Duration {
	if v.Relist <= 0 {
		return t
	}
	return (t/v.Relist + 1) * v.Relist
}
