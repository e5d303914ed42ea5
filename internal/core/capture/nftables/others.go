//go:build linux

package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

// ownPath contains the hooks in the path of a pod's own connections.
var ownPath = []int{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_IN, unix.NF_INET_LOCAL_OUT}

var errEnough = errors.New("enough tables")

// Others returns the tables of other programs, at most a number, that have a chain in the path of a pod's own connections,
// as "FAMILY NAME". It skips those of iptables if shared says that our rules are in them.
func (b *Backend) Others(most int, shared bool) (out []string, err error) {
	families := map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6"}
	err = b.Dump(getChain, func(b *netlink.Batch) { b.Generic(unix.NFPROTO_UNSPEC, 0) }, func(data []byte) error {
		a, _ := netlink.AttributesOf(data)
		c, err := decodeChain(a)
		if err != nil || !slices.Contains(ownPath, c.hook) || c.table == Table || shared && slices.Contains(iptablesTables, c.table) {
			return err
		}
		if family, ok := families[data[0]]; ok && !slices.Contains(out, family+" "+c.table) { // struct nfgenmsg
			out = append(out, family+" "+c.table)
		}
		if len(out) == most {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}
