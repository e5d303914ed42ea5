package main

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A namespace is a network namespace with a pod's interfaces. It lives as long as
// its file descriptor.
type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		if err := podLinks(); err != nil {
			return fmt.Errorf("giving a network namespace its interfaces: %w", err)
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return n, err
}

func (n *namespace) close() { n.file.Close() }

// do runs f on a thread inside the namespace. Sockets that f makes belong to the
// namespace, and processes that it starts run there.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which ends with f and takes its namespace
// and its traced children with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// gateways are the other end of the pod's cable.
var gateways = []string{"10.77.0.1/24", "fd77::1/64"}

// podLinks sets up the namespace of the calling thread as a pod's: loopback, and an
// interface with an address and a default route of each family. The other end of
// the cable is here too and answers nothing: captured traffic does not get that far.
func podLinks() error {
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer0"}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	for _, name := range []string{"lo", "eth0", "peer0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("setting up %s: %w", name, err)
		}
	}
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, g := range gateways {
		gateway, subnet, err := net.ParseCIDR(g)
		if err != nil {
			return err
		}
		own := &net.IPNet{IP: append(net.IP(nil), gateway...), Mask: subnet.Mask}
		own.IP[len(own.IP)-1]++
		// Without duplicate address detection an IPv6 address can be used at once.
		if err := netlink.AddrAdd(eth0, &netlink.Addr{IPNet: own, Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("adding %s: %w", own, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway}); err != nil {
			return fmt.Errorf("adding the route by %s: %w", gateway, err)
		}
	}
	return nil
}
