// Package lint finds mistakes in manifests that make pods start or stop with a race, or not at all.
// It can fix many of them.
//
// The rules are in a table; package kinds lists the kinds of findings. Each rule is a pure
// function that returns findings about an object. It reads the object, and other objects in the
// same files. Package podspec reads the order that a pod requests, and package startup checks
// whether a plan can work. The command plan uses both too, so that it never contradicts lint.
//
// A fix is the difference between two versions of an object. It is applied to the text of the
// file as small edits, so that comments, order and style stay. The result is parsed again before
// the fix is offered. If the style of the text does not allow such an edit, there is no fix.
//
// Where to read:
//
//	lint.go         from files to findings
//	subject.go      a pod with its plan and its position in the file
//	rules.go        the table; package kinds: the meaning of each code
//	source.go       the lines of a file; fix.go: changes to it
//	plan.go         plans that cannot work; order.go, workaround.go, commands.go, probes.go,
//	initcontainers.go, sidecars.go, stop.go, security.go, annotations.go,
//	ports.go        the rules, by theme
//
// Package test/corpus contains correct pods, in which nothing is found, and for each code pods
// with that mistake.
//
// The package reads no clock, does no I/O and does not modify its arguments.
package lint
