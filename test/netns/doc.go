// Package netns tests capture with a real kernel: it writes the rules in network namespaces,
// and connects through them with sockets of real processes.
//
// Each case has its own namespaces. Most of the time it waits until the kernel retransmits a SYN, or waits to see
// that a connection is not answered. So more cases run at once than there are processors. The cases share the lock of
// iptables-legacy, /run/xtables.lock, and the counter of source ports.
package netns
