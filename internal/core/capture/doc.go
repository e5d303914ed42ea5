// Package capture decides which traffic of a pod goes to its proxy, and what happens to a
// connection that arrives before the proxy listens.
//
// An [Intent] contains the user's settings, in the terms of Istio's istio-iptables. [Build] turns
// it into a [Ruleset]: chains of rules, each with its reason. A Ruleset is a value: it can be
// printed, compared, and traced for one connection (package trace) before one of the packages below
// this one writes it into the kernel.
//
// Parking is part of the same rule set: the first packet (SYN) of a connection to a port without a
// listener is dropped instead of refused. The caller's kernel sends it again, so the caller waits.
//
// The package reads no clock and imports only the standard library and contract. It does no I/O,
// except for [Release], which sends packets.
package capture
