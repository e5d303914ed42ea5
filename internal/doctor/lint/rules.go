package lint

// podRules lists the rules about pods. Each rule adds its findings to the builder.
var podRules = []func(subject, *builder){
	unknownFields, planWorks,
	startOff, leftOut, nothingWaits, firstStartOnly,
	heldInPod, holdRequested,
	workarounds,
	probeOfLater, probeOfLoopback, killedWhileWaiting, livenessProbesProxy,
	initNeedsNetwork, initNeverEnds,
	sidecarStart, racesHelper, initBeforeHelper,
	proxyInJob, serverInJob,
	waitsByProgram, shellStays, postStartConnects,
	graceTooShort,
	proxyUser, podSecurity, meshPort,
	annotationsOfPod, annotationsElsewhere, labelsWithoutEffect,
}
