// Package netns tests capture with a real kernel: rules in real network
// namespaces, with sockets of real processes on both sides.
//
// Each case has its own namespaces, and mostly waits: for a connection that must
// not be answered, or for the kernel to retransmit a SYN. So more cases run at once than there
// are processors. They share the lock of iptables-legacy, /run/xtables.lock, and the
// counter of source ports.
package netns
