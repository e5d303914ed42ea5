// Package chart draws what happened to the containers of a pod: one lane each,
// from left to right in time.
//
// A [Chart] is made from a timeline that was simulated, found by the verifier or
// recorded on a node. Drawing it is a pure function of the chart: as text for a
// terminal, and as SVG or HTML for a browser (self-contained: no script, no
// request). The Chart itself marshals to JSON.
//
// Where to read:
//
//	chart.go  lanes, spans and marks, from a timeline
//	text.go   for a terminal
//	svg.go    for a browser
//	html.go   a page around it
package chart
