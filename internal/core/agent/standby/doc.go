// Package standby holds the connections that come before the proxy listens, and
// hands them over when it does.
//
// A [Standby] listens on one capture port of the proxy, as the proxy's user.
// Connections that it accepts without a proxy wait, unread. [Standby.Ready] relays them to a
// second listener of the proxy, which learns the original destination from a PROXY
// protocol header, and steers every new connection to the proxy's own sockets.
// [Standby.Gone] is called when the proxy has died.
//
// The standby goes on listening behind the proxy. The kernel shares connections
// among sockets of one port and user (SO_REUSEPORT), in the order in which they
// began to listen; a program of four instructions (SO_ATTACH_REUSEPORT_CBPF, no
// privilege needed) chooses among the proxy's. When these close, by kill -9 too,
// the choice fails and the kernel falls back on the remaining socket: the standby's. So
// there is always a listener, without any action. Without the program the kernel gives the
// standby a share of the connections, which it relays. The same happens to those of a
// family for which the proxy does not listen.
package standby
