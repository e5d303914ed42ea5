// Package standby holds the connections that come before the proxy listens, and
// hands them over when it does.
//
// A [Standby] listens on one capture port of the proxy, as the proxy's user. What
// it accepts while there is no proxy waits, unread. [Standby.Ready] relays it to a
// second listener of the proxy, which learns the original destination from a PROXY
// protocol header, and steers every new connection to the proxy's own sockets.
// [Standby.Gone] says that the proxy has died.
//
// The standby goes on listening behind the proxy. The kernel shares connections
// among sockets of one port and user (SO_REUSEPORT), in the order in which they
// began to listen; a program of four instructions (SO_ATTACH_REUSEPORT_CBPF, no
// privilege needed) chooses among the proxy's. When these close, by kill -9 too,
// the choice fails and the kernel falls back on what is left: the standby. So there
// is always a listener, without any action.
//
// Where the kernel has no such program the standby leaves the port after a grace and
// comes back with Gone; meanwhile the kernel's parking (package capture) makes
// connections wait. Where the proxy listens by sockets of another kind than foreseen,
// or not at all for a family, see mirror.
package standby
