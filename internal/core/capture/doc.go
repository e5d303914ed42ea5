// Package capture decides which traffic of a pod goes to its proxy, and what
// happens to a connection that arrives before the proxy listens.
//
// An [Intent] is what the user configured, in the terms of Istio's
// istio-iptables. [Build] turns it into a [Ruleset]: chains of rules, each with
// the reason why it is there. A Ruleset is a value: it can be printed, compared,
// explained for one connection (package trace) and only then written into the
// kernel, by one of the packages below this one.
//
// Parking is part of the same rule set: the first packet (SYN) of a connection
// to a port without a listener is dropped instead of refused, so that the caller's
// kernel sends it again and the caller waits.
//
// The package reads no clock and imports only the standard library and
// contract. It does no I/O, except for [Release], which sends packets.
package capture
