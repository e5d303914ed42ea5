// Package standby holds the connections that come before the proxy listens, and
// hands them over to the proxy when it does.
//
// A [Standby] listens on one capture port of the proxy, as the proxy's user.
// Connections that it accepts while there is no proxy wait, unread. [Standby.Ready] relays
// them to a second listener of the proxy, which learns the original destination from a PROXY
// protocol header, and steers every new connection to the proxy's own sockets.
// [Standby.Gone] is called when the proxy has died.
//
// The standby's sockets keep listening beside the proxy's. The kernel distributes the connections among all
// sockets of one port and user (SO_REUSEPORT), which it numbers in the order in which they began to listen. A
// small program (SO_ATTACH_REUSEPORT_CBPF, no privilege needed) chooses one of the proxy's
// sockets. When these are closed, even by kill -9, the program's choice does not exist and the kernel falls
// back on the remaining socket, the standby's. So there is always a listener, and nothing has to be done for
// it. Without the program, the standby gets a share of the connections, and relays these. It also relays all
// connections of an IP family for which the proxy does not listen.
package standby
