// Package lint finds in manifests what will make pods start or stop with a race, or not
// at all, and writes the fix.
//
// The rules are a table (package kinds lists what they find). Each rule is a pure function
// from a pod or a service, and what the same files contain about it, to findings. Package
// podspec reads what a pod does about its start-up, and startup checks whether a plan can
// work, so that lint and plan never disagree.
//
// A fix is the difference between two pods, applied to the text of the file as small edits:
// comments, order and style stay. The result is parsed again before the fix is offered.
// Where the style of the text does not allow such an edit, no fix is offered.
//
// Where to read:
//
//	lint.go         from files to findings
//	subject.go      a pod with its plan and its place in the file
//	rules.go        the table; package kinds: the meaning of each code
//	source.go       the lines of a file; fix.go: changes to it
//	plan.go         plans that cannot work; order.go, workaround.go, commands.go, probes.go,
//	initcontainers.go, sidecars.go, stop.go, security.go, annotations.go,
//	ports.go: one theme each
//
// Package test/corpus contains sane pods, in which nothing is found, and bad twins for each code.
//
// The package reads no clock, does no I/O and does not modify its arguments.
package lint
