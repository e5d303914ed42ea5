package lint

// podRules are the table of rules over pods. Each adds what it finds.
var podRules = []func(subject, *builder){
	unknownFields, planWorks,
	startOff, leftOut, nothingWaits,
	heldInPod, holdRequested,
	workarounds,
	probeOfLater, killedWhileWaiting, livenessProbesProxy,
	initNeedsNetwork,
	proxyInJob, serverInJob,
	graceTooShort,
	proxyUser, podSecurity, meshPort,
	annotationsOfPod, annotationsElsewhere, injectionWithoutEffect,
}

// serviceRules are those over services.
var serviceRules = []func(service, *builder){serverFirst}
