// Package envoy is what the agent knows of Envoy: its bootstrap, its command line, its
// log lines and its admin interface. It starts nothing; package supervise does.
//
// [Options] are checked as a whole by [Options.Check] before a port is bound. They
// become a bootstrap ([Options.Bootstrap], plain structs as JSON) and arguments
// ([Options.Args]). The bootstrap names the secrets and their SDS cluster: package sds.
// [ParseLine] reads what Envoy logs, [Explain] finds in it why Envoy ended, and [Admin]
// controls a running one.
//
// What is written here was tried with Envoy 1.40; the tests start that Envoy.
package envoy
