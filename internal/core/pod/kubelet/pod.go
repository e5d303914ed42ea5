package kubelet

import (
	"slices"
	"time"
)

// A Pod is the part of a pod's spec that the kubelet's rules depend on.
type Pod struct {
	Init       []Container // spec.initContainers
	Containers []Container // spec.containers
	Restart    RestartPolicy
	Grace      time.Duration // terminationGracePeriodSeconds; 0 is the default, 30 s
}

// A Container is one container of a pod.
type Container struct {
	Name string

	// Restart is the container's own policy; empty means the pod's. Always makes an init container a native
	// sidecar.
	Restart RestartPolicy

	// NeverPull is imagePullPolicy Never: while the image is missing, each pass looks for it again, without
	// back-off.
	NeverPull bool

	PostStart, PreStop           Handler       // NoHandler: no hook
	PreStopSleep                 time.Duration // how long the PreStop sleeps, if it is a Sleep
	Startup, Liveness, Readiness Probe         // without handler: no probe
}

// RestartPolicy says after which exits the kubelet starts a container again. Empty is Always.
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

	// Gate is a probe that the gate answers, by whatever transport. A startup probe succeeds once the
	// command behind the gate has started up, and blocks until then. A liveness probe succeeds while the
	// gate waits; afterwards the command's own liveness probe decides.
	Gate Handler = "gate"
)

// PreStopOutlasts reports whether a container's preStop sleeps so long that the grace period, and with it
// the kubelet's order of stops, can end before the container does. SIGKILL comes two seconds after SIGTERM
// at the earliest.
func (p Pod) PreStopOutlasts(name string) bool {
	sleeps := p.PreStopSleep(name)
	return sleeps > 0 && sleeps+minimumGrace > p.GracePeriod()
}

// OrdersStops reports whether the grace period is long enough for the kubelet to stop containers in order.
func (p Pod) OrdersStops() bool { return p.GracePeriod() >= minimumGrace }

// PreStopSleep returns how long the preStop of a container sleeps; 0 if it does not.
func (p Pod) PreStopSleep(name string) time.Duration {
	for _, c := range slices.Concat(p.Init, p.Containers) {
		if c.Name == name && c.PreStop == Sleep {
			return c.PreStopSleep
		}
	}
	return 0
}

// GracePeriod returns Grace, or the API's default.
func (p Pod) GracePeriod() time.Duration {
	if p.Grace <= 0 {
		return 30 * time.Second
	}
	return p.Grace
}

// A Probe checks a container periodically. Fields that are 0 have the API's defaults.
type Probe struct {
	Handler      Handler
	InitialDelay time.Duration
	Period       time.Duration // default 10 s
	Timeout      time.Duration // default 1 s
	Successes    int           // successThreshold; default 1
	Failures     int           // failureThreshold; default 3
	Grace        time.Duration // terminationGracePeriodSeconds after a failure of this probe; 0: the pod's
}

// minimumGrace is the shortest time between SIGTERM and SIGKILL.
// Source: kuberuntime_manager.go minimumGracePeriodInSeconds.
const minimumGrace = 2 * time.Second

// withDefaults returns p with the defaults of the API.
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
	probes     [][3]Probe  // by container; a probe that does not run has no handler
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

// kind returns the kind of container i. A kubelet without native sidecars treats one as a plain init
// container, which then never completes.
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
