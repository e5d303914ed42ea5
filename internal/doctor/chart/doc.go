// Package chart draws what happened to the containers of a pod: each container
// has one lane, and time runs from left to right.
//
// A [Chart] is made from a timeline, which was simulated, found by the verifier
// or recorded on a node. It can be drawn as text for a terminal, and as SVG or
// HTML for a browser, which contain no script and make no request. A Chart
// marshals to JSON.
//
// Where to read:
//
//	chart.go  lanes, spans and marks, from a timeline
//	text.go   for a terminal
//	svg.go    for a browser
//	html.go   a page of several charts with text
package chart
