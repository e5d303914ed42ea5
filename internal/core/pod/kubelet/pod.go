package kubelet

import (
	"slices"
	"time"
)

// A Pod holds the fields of a pod's spec on which the kubelet's rules depend.
type Pod struct {
	Init       []Container // spec.initContainers
	Containers []Container // spec.containers
	Restart    RestartPolicy
	Grace      time.Duration // terminationGracePeriodSeconds; 0 is the default, 30 s
}

// A Container holds the fields of a container on which the kubelet's rules depend.
type Container struct {
	Name string

	// Restart is the container's own restart policy; if it is empty, the pod's applies. The policy Always makes
	// an init container a native sidecar.
	Restart RestartPolicy

	// NeverPull means imagePullPolicy Never. If the image is missing, each pass checks for it again without
	// back-off.
	NeverPull bool

	PostStart, PreStop           Handler       // NoHandler if there is no hook
	PreStopSleep                 time.Duration // duration of the PreStop hook, if that is a Sleep; of another hook the least duration
	Startup, Liveness, Readiness Probe         // without a handler if there is no probe
}

// RestartPolicy determines after which exits the kubelet restarts a container. Empty means Always.
type RestartPolicy string

const (
	Always    RestartPolicy = "Always"
	OnFailure RestartPolicy = "OnFailure"
	Never     RestartPolicy = "Never"
)

// Handler is the mechanism of a hook or a probe.
type Handler string

const (
	NoHandler Handler = ""
	Exec      Handler = "exec"
	HTTPGet   Handler = "httpGet"
	TCPSocket Handler = "tcpSocket"
	GRPC      Handler = "grpc"  // probes only
	Sleep     Handler = "sleep" // hooks only

	// Gate is a probe that the container's gate answers. The transport does not matter. As a startup probe it
	// blocks until the command behind the gate has started up, and then succeeds. As a liveness probe it succeeds
	// while the gate waits; after that, it has the result of the command's own liveness probe. As a preStop hook it
	// returns when the containers that need this one have ended.
	Gate Handler = "gate"
)

// PreStopOutlasts reports whether a container's preStop hook sleeps so long that the grace period can end before
// the container has stopped. The kubelet then no longer keeps the order of stops. Between SIGTERM and SIGKILL
// there are at least two seconds.
func (p Pod) PreStopOutlasts(name string) bool {
	sleeps := p.PreStopSleep(name)
	return sleeps > 0 && sleeps+minimumGrace > p.GracePeriod()
}

// OrdersStops reports whether the grace period is long enough for the kubelet to stop containers in order.
func (p Pod) OrdersStops() bool { return p.GracePeriod() >= minimumGrace }

// PreStopSleep returns the time for which a container's preStop hook sleeps at least; 0 if it does not sleep.
func (p Pod) PreStopSleep(name string) time.Duration {
	for _, c := range slices.Concat(p.Init, p.Containers) {
		if c.Name == name {
			return c.PreStopSleep
		}
	}
	return 0
}

// HasPreStop reports whether a container has a preStop hook.
func (p Pod) HasPreStop(name string) bool {
	return slices.ContainsFunc(slices.Concat(p.Init, p.Containers), func(c Container) bool { return c.Name == name && c.PreStop != NoHandler })
}

// PreStopWaits reports whether a container's preStop hook waits for the containers that need it; see [Gate].
func (p Pod) PreStopWaits(name string) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Name == name && c.PreStop == Gate })
}

// GracePeriod returns Grace, or the API's default if that is not set.
func (p Pod) GracePeriod() time.Duration {
	if p.Grace <= 0 {
		return 30 * time.Second
	}
	return p.Grace
}

// A Probe is a periodic check of a container. Fields that are 0 have the API's defaults.
type Probe struct {
	Handler      Handler
	InitialDelay time.Duration
	Period       time.Duration // default 10 s
	Timeout      time.Duration // default 1 s
	Successes    int           // successThreshold; default 1
	Failures     int           // failureThreshold; default 3
	Grace        time.Duration // terminationGracePeriodSeconds, if this probe kills the container; 0: the pod's grace period
}

// minimumGrace is the shortest time between SIGTERM and SIGKILL.
// Source: kuberuntime_manager.go minimumGracePeriodInSeconds.
const minimumGrace = 2 * time.Second

// withDefaults returns p with the API's defaults filled in.
// Source: pkg/apis/core/v1/defaults.go SetDefaults_Probe.
func (p Probe) withDefaults() Probe {
	if p.Period <= 0 {
		p.Period = 10 * time.Second
	}
	if p.Timeout <= 0 {
		p.Timeout = time.Second
	}
	p.Successes = max(p.Successes, 1)
	if p.Failures <= 0 {
		p.Failures = 3
	}
	return p
}

// A spec is a pod in the form that the machine uses: one list, with the defaults filled in. All states of a
// pod share it, and nothing changes it.
type spec struct {
	containers []Container // init containers first
	probes     [][3]Probe  // by container; the handler of a probe that does not run is empty
	inits      int         // number of init containers
	restart    RestartPolicy
	grace      time.Duration
	version    Version
}

func newSpec(p Pod, v Version) *spec {
	s := &spec{inits: len(p.Init), restart: p.Restart, grace: p.GracePeriod(), version: v}
	s.containers = append(append(s.containers, p.Init...), p.Containers...)
	if s.restart == "" {
		s.restart = Always
	}
	for i := range s.containers {
		c := &s.containers[i]
		c.Startup, c.Liveness, c.Readiness = c.Startup.withDefaults(), c.Liveness.withDefaults(), c.Readiness.withDefaults()
		run := [3]Probe{c.Startup, c.Liveness, c.Readiness}
		if s.kind(i) == initial {
			run = [3]Probe{} // Source: prober/prober_manager.go AddPod.
		}
		s.probes = append(s.probes, run)
	}
	return s
}

func (s *spec) hasProbe(i, w int) bool { return s.probes[i][w].Handler != NoHandler }

// kind selects the rules by which a container starts and ends.
type kind int

const (
	plain kind = iota
	initial
	sidecar
)

// kind returns the kind of container i. A kubelet that does not support native sidecars treats them as regular
// init containers, which then never complete.
func (s *spec) kind(i int) kind {
	switch {
	case i >= s.inits:
		return plain
	case s.containers[i].Restart == Always && s.version.Sidecars:
		return sidecar
	default:
		return initial
	}
}

// policy returns the restart policy of container i.
// Source: pkg/api/v1/pod/util.go ContainerShouldRestart.
func (s *spec) policy(i int) RestartPolicy {
	own := s.containers[i].Restart
	if s.kind(i) == sidecar || own != "" && s.version.ContainerRestart {
		return own
	}
	return s.restart
}

func (s *spec) hasSidecar() bool {
	for i := range s.inits {
		if s.kind(i) == sidecar {
			return true
		}
	}
	return false
}

// find returns the index of a container, or -1.
func (s *spec) find(name string) int {
	for i := range s.containers {
		if s.containers[i].Name == name {
			return i
		}
	}
	return -1
}
