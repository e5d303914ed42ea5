package lint

import "outrider.dev/internal/lint/finding"

// podRules are the table of rules over pods. Each adds what it finds.
var podRules = []func(subject, *builder){
	unknownFields, planWorks,
	startOff, leftOut, nothingWaits,
	heldInPod, holdRequested,
	workarounds,
	probeOfLater, killedWhileWaiting, livenessAsksProxy,
	initNeedsNetwork,
	proxyInJob, serverInJob,
	graceTooShort,
	proxyUser, podSecurity, meshPort,
	annotationsOfPod, annotationsElsewhere, injectionWithoutEffect,
}

// serviceRules are those over services.
var serviceRules = []func(service, *builder){serverFirst}

func kindOf(code finding.Code) finding.Kind {
	for _, k := range kinds {
		if k.Code == code {
			return k
		}
	}
	return finding.Kind{Code: code, Severity: finding.Warning}
}
