package localpod

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const bridge = "pods"

// These are the default networks of a node.
var (
	defaultIPv4 = netip.MustParsePrefix("10.244.0.0/24")
	defaultIPv6 = netip.MustParsePrefix("fd00:10:244::/64")
)

// A network assigns addresses: the first of each prefix to the node, and the following ones to pods.
type network struct {
	prefixes []netip.Prefix
	node     []netip.Addr
	last     []netip.Addr
}

func newNetwork(prefixes ...netip.Prefix) network {
	var n network
	for _, p := range prefixes {
		first := p.Masked().Addr().Next()
		n.prefixes, n.node, n.last = append(n.prefixes, p.Masked()), append(n.node, first), append(n.last, first)
	}
	return n
}

// next returns new addresses for a pod, one of each prefix, or an error if none is left.
func (n *network) next() ([]netip.Addr, error) {
	var out []netip.Addr
	for i, p := range n.prefixes {
		a := n.last[i].Next()
		if !p.Contains(a) || a.Is4() && !p.Contains(a.Next()) { // the last address is for broadcasts
			return nil, fmt.Errorf("no address is left in %s", p)
		}
		out = append(out, a)
	}
	copy(n.last, out)
	return out, nil
}

// Addresses returns the node's addresses on the network of its pods, IPv4 first.
func (n *Node) Addresses() []netip.Addr { return n.network.node }

func (n *Node) connect(o NodeOptions) error {
	if !o.IPv4.IsValid() {
		o.IPv4 = defaultIPv4
	}
	return n.Do(func() error {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf("making a bridge: %w", err)
		}
		n.network = newNetwork(o.IPv4, defaultIPv6)
		if err := address(link, netip.PrefixFrom(n.network.node[1], defaultIPv6.Bits())); err != nil { // the kernel has no IPv6, or it is disabled
			n.network = newNetwork(o.IPv4)
		}
		if err := address(link, netip.PrefixFrom(n.network.node[0], o.IPv4.Bits())); err != nil {
			return err
		}
		return errors.Join(up("lo"), up(bridge))
	})
}

// address gives a link an address that is usable at once: without duplicate address detection for IPv6.
func address(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", link.Attrs().Name, p, err)
	}
	return nil
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting link %s up: %w", name, err)
	}
	return nil
}

// plug connects a pod to the node's bridge by a veth pair, and sets up the pod's addresses and routes.
func (n *Node) plug(number int, pod space, addrs []netip.Addr) error {
	err := n.Do(func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = fmt.Sprintf("pod%d", number), master.Attrs().Index
		cable := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(pod.file.Fd()))}
		if err := netlink.LinkAdd(cable); err != nil {
			return fmt.Errorf("laying a cable to the pod: %w", err)
		}
		return up(attrs.Name)
	})
	if err != nil {
		return err
	}
	return inside(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for i, a := range addrs {
			if err := address(eth0, netip.PrefixFrom(a, n.network.prefixes[i].Bits())); err != nil {
				return err
			}
		}
		if err := errors.Join(up("lo"), up("eth0")); err != nil {
			return err
		}
		for _, gateway := range n.network.node {
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice()}); err != nil {
				return fmt.Errorf("routing to %s: %w", gateway, err)
			}
		}
		return nil
	}, pod)
}

// podSysctls are the kernel parameters that containerd 2 sets in a pod's network, so that any user may listen on
// any port and send pings. Source: containerd's docs/cri/config.md, enable_unprivileged_ports and
// enable_unprivileged_icmp.
var podSysctls = map[string]string{
	"net.ipv4.ip_unprivileged_port_start": "0",
	"net.ipv4.ping_group_range":           "0 2147483647",
}

// sysctlOf matches the kernel parameters that belong to a pod's namespaces: those of the network and of
// inter-process communication. All others belong to the machine. Source: pkg/kubelet/sysctl/allowlist.go and
// namespace.go of kubernetes v1.34.4.
var sysctlOf = regexp.MustCompile(`^(net|fs\.mqueue|kernel\.(sem|shm[a-z_]*|msg[a-z_]*))(\.[A-Za-z0-9_-]+)*$`)

// checkSysctls returns an error for kernel parameters that belong to the machine.
func checkSysctls(pod *corev1.Pod) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	var all []error
	for i, s := range pod.Spec.SecurityContext.Sysctls {
		if !sysctlOf.MatchString(s.Name) {
			all = append(all, refuse(fmt.Sprintf("spec.securityContext.sysctls[%d].name", i), "%q is not the pod's own", s.Name).
				but("those that are: net.*, kernel.sem, kernel.shm*, kernel.msg*, fs.mqueue.*"))
		}
	}
	return errors.Join(all...)
}

// setSysctl sets a kernel parameter of the pod. It must run on a thread inside the pod's namespaces, because
// /proc/sys/net belongs to the network of the thread that opens it.
func setSysctl(name, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("setting sysctl %s: %w", name, err)
	}
	return nil
}
