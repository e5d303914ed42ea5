// Package chart draws what happened to the containers of a pod: one lane each,
// from left to right in time.
//
// A [Chart] is made from a timeline, simulated, found by the verifier or recorded
// on a node; drawing one is a pure function of it. Text is for a terminal, SVG
// and HTML for a browser (self-contained: no script, nothing fetched), and the
// Chart itself marshals to JSON.
//
// Where to read:
//
//	chart.go  lanes, spans and marks, out of a timeline
//	text.go   for a terminal
//	svg.go    for a browser
//	html.go   a page around it
package chart
