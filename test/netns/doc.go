// Package netns holds the tests that need a real kernel: rules in real network
// namespaces, with real processes' sockets on both sides of them.
package netns
