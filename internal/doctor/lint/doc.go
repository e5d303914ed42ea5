// Package lint finds in manifests what will make pods start or stop with a race, or not
// at all, and writes the fix.
//
// The rules are a table (package kinds lists what they find): each is a pure function from a pod, or a
// service, with what the same files contain about it, to findings. Package podspec reads
// what a pod does about its start-up, and startup checks whether a plan can work, so that
// lint and plan never disagree.
//
// A fix is the difference between two pods, put into the text of the file as small edits:
// comments, order and style stay. It is read again before it is offered; where the text
// is written in a way that an edit cannot be put into, there is no fix.
//
// Where to read:
//
//	lint.go         files in, findings out
//	subject.go      a pod with its plan and its place in the file
//	rules.go        the table; package kinds: what each code stands for
//	source.go       the lines of a file; fix.go: changes to it
//	plan.go         what cannot work; order.go, workaround.go, commands.go, probes.go,
//	initcontainers.go, sidecars.go, stop.go, security.go, annotations.go,
//	ports.go: one theme each
//
// Package test/corpus has sane pods, in which nothing is found, and bad twins for each code.
//
// The package reads no clock, does no I/O and changes nothing that it is given.
package lint
