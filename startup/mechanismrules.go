package startup

import "slices"

// mechanismRules defines which edges each mechanism enforces, and its limits. Every limit was measured or read
// in source code. The figures are from kubelets v1.34.4 and v1.36.3, n=8 each, with a container From that is
// healthy 0.1 s after its start. "kubelet v1.34.4 F" is the function F below pkg/kubelet of kubernetes v1.34.4.
// In reasons, From and To stand for the names of the containers.
var mechanismRules = map[Mechanism]mechanismRule{
	Gate: {
		start: keeps(EveryStart),
		stop:  func(s situation) bool { return !leavesFirst(s) },
		limits: []limitRule{
			{cannotWaitInside, deadlock},
			{nothingReports, Limit{Code: "no-health-signal", Fatal: true,
				Reason: "nothing reports that From is healthy: it has no probe, no hook, no report"}},
			{neverCompletes, restartsForEver},
			{nil, Limit{Code: needsCommand,
				Reason: "the commands of To, and of From unless it reports by itself, must be known: from the pod spec, else from the image"}},
			{leavesFirst, Limit{Code: "no-stop-order",
				Reason: "From has neither a gate nor a preStop hook that waits: plain containers get SIGTERM at the same time; inject the pod again, which adds such a hook",
				Source: "kubelet v1.34.4 killContainersWithSyncResult"}},
		},
	},
	Native: {
		start: keeps(FirstStart),
		stop:  func(s situation) bool { return s.to.Kind == Plain || s.to.Kind == Sidecar },
		limits: []limitRule{
			{func(s situation) bool { return s.from.Kind != Sidecar || !s.listedBefore() }, Limit{Code: "not-listed-before", Fatal: true,
				Reason: "From must be a restartable init container that is listed before To"}},
			{func(s situation) bool { return s.judge.on < 29 }, Limit{Code: "needs-1.29", Fatal: true,
				Reason: "restartable init containers are off by default before Kubernetes 1.29: the pod would hang in its init container",
				Source: "kubernetes v1.34.4 pkg/features/kube_features.go SidecarContainers"}},
			{neverCompletes, Limit{Code: "never-completes", Fatal: true, Reason: "a sidecar never completes"}},
			{func(s situation) bool { return s.edge.After == Healthy && !s.from.holdsNext() }, Limit{Code: "kubelet-does-not-wait", Fatal: true,
				Reason: "the kubelet waits for a startup probe or a blocking postStart only; From has neither",
				Source: "kubelet v1.34.4 computeInitContainerActions"}},
			{nil, Limit{Code: "first-start-only",
				Reason: "once a plain container runs, a dead sidecar neither stops nor holds the others; a pod's only app is held again when it ends too",
				Source: "kubelet v1.34.4 computeInitContainerActions (podHasInitialized); seen on v1.34.4"}},
			{func(s situation) bool { return s.plainContainers() > 1 }, Limit{Code: "unordered-restart-beside-siblings",
				Reason: "while one plain container runs, another one that crashed is restarted at once without the sidecar",
				Source: "kubelet v1.34.4 computeInitContainerActions; seen on v1.34.4"}},
			{func(s situation) bool { return s.from.Kind == Sidecar && !s.lastInit() }, Limit{Code: "unordered-restart-after-later-init",
				Reason: "an init container after From decides alone whether the pod counts as initialized: even a lone app is restarted while From is down",
				Source: "kubelet v1.34.4 computeInitContainerActions walks the list backwards"}},
			{func(s situation) bool { return s.from.Health == StartupProbe }, Limit{Code: "probe-granularity",
				Reason: "To starts 1.9 s after From is healthy (0.9 s on 1.36): probes run at whole seconds, and the sync loop adds its own",
				Source: "measured"}},
			{func(s situation) bool { return s.from.Health == PostStart }, hidesIP},
			{func(s situation) bool { return s.from.Health == PostStart && s.judge.on < 36 }, Limit{Code: "relist-delay",
				Reason: "To starts up to 1 s after From is healthy (0.1 s on 1.36): the kubelet looks again at its next relist",
				Source: "measured"}},
			{isOptional, notOptional},
			{hasTimeout, noTimeout},
			{followsRestarts, noRestarts},
		},
	},
	InitDone: {
		start: keeps(EveryStart),
		stop:  stops(true), // From has already ended
		limits: []limitRule{
			{func(s situation) bool { return s.from.Kind != Init || !s.listedBefore() }, Limit{Code: "not-listed-before", Fatal: true,
				Reason: "From must be a plain init container that is listed before To"}},
			{func(s situation) bool { return s.edge.After != Completed }, Limit{Code: "only-completed", Fatal: true,
				Reason: "a plain init container has ended when To starts: only \"completed\" can be kept"}},
			{nil, Limit{Code: "slow-init", Reason: "every init container costs 0.3 to 1 s of each pod start", Source: "measured"}},
			{isOptional, notOptional},
			{hasTimeout, noTimeout},
		},
	},
	Hold: {
		start: keeps(FirstStart),
		stop:  outlives,
		limits: []limitRule{
			{func(s situation) bool { return s.from.Kind != Plain || s.to.Kind != Plain || !s.listedBefore() }, Limit{Code: "not-listed-before", Fatal: true,
				Reason: "From and To must be plain containers, From listed before To"}},
			{func(s situation) bool { return s.edge.After != Started && s.from.Health != PostStart }, Limit{Code: "kubelet-does-not-wait", Fatal: true,
				Reason: "only a postStart hook of From holds the next container"}},
			{neverCompletes, Limit{Code: "never-completes", Fatal: true, Reason: "From never completes"}},
			{nil, Limit{Code: "fails-open",
				Reason: "To starts all the same when From's image is missing, From is in back-off, or its hook fails",
				Source: "kubelet v1.34.4 SyncPod step 8 ignores the error of start; seen on v1.34.4"}},
			{nil, Limit{Code: "first-start-only", Reason: "no container waits for another one when it restarts",
				Source: "kubelet v1.34.4 computePodActions"}},
			{func(s situation) bool { return s.from.Health == PostStart }, hidesIP},
			{not(outlives), Limit{Code: "no-stop-order", Reason: "plain containers get SIGTERM at the same time",
				Source: "kubelet v1.34.4 killContainersWithSyncResult"}},
			{outlives, bySockets},
			{hasTimeout, Limit{Code: "no-timeout",
				Reason: "an exec hook has no timeout in the kubelet: From's hook must bound itself, and then fails open",
				Source: "kubelet v1.34.4 lifecycle/handlers.go"}},
			{followsRestarts, noRestarts},
		},
	},
	Wrapper: {
		start: keeps(EveryStart),
		stop:  stopsLast,
		limits: []limitRule{
			{cannotWaitInside, deadlock},
			{neverCompletes, restartsForEver},
			{nil, polls},
			{outlives, bySockets},
			{not(stopsLast), Limit{Code: "no-stop-order", Reason: "nothing wraps From: plain containers get SIGTERM at the same time",
				Source: "kubelet v1.34.4 killContainersWithSyncResult"}},
			{followsRestarts, noRestarts},
		},
	},
	HealthLoop: {
		start: keeps(EveryStart),
		stop:  kubeletStops,
		limits: []limitRule{
			{completes, cannotSeeEnds},
			{cannotWaitInside, deadlock},
			{checksPortOnly, portOnly},
			{nil, polls},
			{nil, Limit{Code: "ignores-sigterm", Reason: "as PID 1 a shell loop ignores SIGTERM: a pod deleted meanwhile takes its whole grace period", Source: "measured"}},
			{not(stopsLast), onlyAtStart},
			{outlives, deafMeanwhile},
			{followsRestarts, noRestarts},
		},
	},
	BoundedLoop: {
		start: keeps(Nowhere),
		stop:  kubeletStops,
		limits: []limitRule{
			{completes, cannotSeeEnds},
			{nil, Limit{Code: "limited-retries", Reason: "it polls a number of times, then gives up and continues: To runs without From on a bad day"}},
			{checksPortOnly, portOnly},
			{nil, polls},
			{not(stopsLast), onlyAtStart},
			{outlives, deafMeanwhile},
			{followsRestarts, noRestarts},
		},
	},
	PostStartProbe: {
		start: keeps(Nowhere),
		stop:  outlives,
		limits: []limitRule{
			{nil, Limit{Code: "runs-concurrently", Reason: "a container's postStart runs concurrently with its command, not before it: a failure kills To and starts it again, with back-off",
				Source: "kubelet v1.34.4 startContainer step 4"}},
			{not(outlives), onlyAtStart},
			{outlives, bySockets},
		},
	},
	Sleep: {
		start: keeps(Nowhere),
		stop:  stops(false),
		limits: []limitRule{
			{nil, Limit{Code: "fixed-delay", Reason: "it waits for a time, not for From: too short on a bad day, too long on all others"}},
			{not(outlives), onlyAtStart},
			{outlives, deafMeanwhile},
		},
	},
}

// Limits that several mechanisms share.
var (
	deadlock = Limit{Code: "deadlock", Fatal: true, Reason: "the kubelet starts From only after To is done, and To waits for From",
		Source: "kubelet v1.34.4 computeInitContainerActions"}
	cannotSeeEnds = Limit{Code: "only-healthy", Fatal: true, Reason: "a loop over a health port cannot see that a container completed"}
	polls         = Limit{Code: "polls", Reason: "it polls at intervals, so To starts up to one of them late"}
	portOnly      = Limit{Code: "checks-port-only", Reason: "it checks a port, not health: From may answer long before it is healthy"}
	hidesIP       = Limit{Code: "hides-pod-ip",
		Reason: "the pod has no IP in the API while the hook blocks: what waits for the IP (a CNI, a control plane) deadlocks",
		Source: "kubernetes#85966; seen on v1.34.4"}
	restartsForEver = Limit{Code: "never-completes", Fatal: true, Reason: "From never completes: the kubelet restarts it whenever it ends"}
	onlyAtStart     = Limit{Code: "no-stop-order", Reason: "it does nothing when the pod stops"}
	bySockets       = Limit{Code: "stop-by-sockets",
		Reason: "From stops after To as far as open sockets show that To runs: where To has none, From may stop first"}
	deafMeanwhile = Limit{Code: "no-stop-order",
		Reason: "the preStop hook of From waits for To, but as PID 1 a shell that still waits ignores SIGTERM, and outlasts the hook"}
	notOptional = Limit{Code: "optional-unsupported", Reason: "a From that fails holds To for ever; the kubelet has no optional containers"}
	noTimeout   = Limit{Code: "no-timeout", Reason: "the kubelet waits without bound"}
	noRestarts  = Limit{Code: "restarts-not-propagated", Reason: "the kubelet does not notify a container when another one restarts",
		Source: "kubernetes#40908, #54648, #70569"}
)

// cannotWaitInside reports whether the pod would deadlock if the kubelet started the container To, whose command
// then waited inside it. This happens if the container From cannot reach the condition until To's command runs.
func cannotWaitInside(s situation) bool {
	if s.from.Name != s.to.Name && !s.holdsOthers() {
		return false // the common case, which needs no graph
	}
	return s.judge.waitsFor(point{s.edge.From, reached(s.edge.After)}, point{s.edge.To, running})
}

// holdsOthers reports whether the kubelet, or the health of another container, waits until To runs.
func (s situation) holdsOthers() bool {
	return s.to.Kind == Init || s.to.holdsNext() || s.judge.needsToRun(s.edge.To)
}

func nothingReports(s situation) bool { return s.edge.After == Healthy && s.from.Health == NoHealth }

func neverCompletes(s situation) bool { return s.edge.After == Completed && !s.from.completes() }

// leavesFirst reports whether the container From may end before To when the pod stops, although a gate holds To back at
// its start.
func leavesFirst(s situation) bool { return s.from.LeavesFirst() && s.edge.After != Completed }

func isOptional(s situation) bool { return s.edge.Optional }

func hasTimeout(s situation) bool { return s.edge.Timeout > 0 }

func completes(s situation) bool { return s.edge.After == Completed }

// checksPortOnly reports whether the container To waits only for the start of the container From although From
// reports its health.
func checksPortOnly(s situation) bool { return s.edge.After == Started && s.from.Health != NoHealth }

// kubeletStops reports whether the container To ends before the container From even without the mechanism: the
// kubelet stops a sidecar after the regular containers, and a container that completed has already ended.
func kubeletStops(s situation) bool {
	return s.from.Kind == Sidecar && s.to.Kind == Plain || s.edge.After == Completed
}

// outlives reports whether a preStop hook of the container From waits for the container To. The kubelet stops a sidecar
// last anyway.
func outlives(s situation) bool {
	return s.from.Kind == Plain && slices.Contains(s.from.Outlives, s.to.Name) && s.edge.After != Completed
}

// stopsLast reports whether the kubelet or a preStop hook stops From after To, whatever the mechanism of the start is.
func stopsLast(s situation) bool { return kubeletStops(s) || outlives(s) }

func not(when func(situation) bool) func(situation) bool {
	return func(s situation) bool { return !when(s) }
}

func followsRestarts(s situation) bool { return s.edge.OnRestart != Ignore }
