// Package netns holds the tests that need a real kernel: rules in real network
// namespaces, with real processes' sockets on both sides of them.
//
// Each case has namespaces of its own, and waits most of its time: for a connection that must
// not be answered, or for the kernel to send a SYN again. So many run at once, more than there
// are processors. What they share are the lock of iptables-legacy, /run/xtables.lock, and the
// counter of source ports.
package netns
