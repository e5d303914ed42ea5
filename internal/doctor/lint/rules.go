package lint

// podRules are the table of rules over pods. Each adds what it finds.
var podRules = []func(subject, *builder){
	unknownFields, planWorks,
	startOff, leftOut, nothingWaits, firstStartOnly,
	heldInPod, holdRequested,
	workarounds,
	probeOfLater, killedWhileWaiting, livenessProbesProxy,
	initNeedsNetwork, initNeverEnds,
	sidecarStart, racesHelper, initBeforeHelper,
	proxyInJob, serverInJob,
	waitsByProgram, shellStays, postStartConnects,
	graceTooShort,
	proxyUser, podSecurity, meshPort,
	annotationsOfPod, annotationsElsewhere, labelsWithoutEffect,
}
