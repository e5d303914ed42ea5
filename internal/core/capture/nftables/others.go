//go:build linux

package nftables

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

var errEnough = errors.New("enough tables")

// Others returns the tables of other programs, at most a number, that have a chain in the path of a pod's own connections,
// as "FAMILY NAME". It skips those of iptables if shared says that our rules are in them.
func (b *Backend) Others(most int, shared bool) (out []string, err error) {
	families := map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6"}
	err = b.Dump(getChain, func(b *netlink.Batch) { b.Generic(unix.NFPROTO_UNSPEC, 0) }, func(data []byte) error {
		table, hooked, err := decodeHooked(data)
		if err != nil || !hooked || table == Table || shared && slices.Contains(iptablesTables, table) {
			return err
		}
		if family, ok := families[data[0]]; ok && !slices.Contains(out, family+" "+table) { // struct nfgenmsg
			out = append(out, family+" "+table)
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

// decodeHooked returns the table of a chain, and whether the chain is in the path of a pod's own connections.
func decodeHooked(data []byte) (table string, hooked bool, err error) {
	a, _ := netlink.AttributesOf(data)
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_CHAIN_TABLE:
			table = a.Text()
		case unix.NFTA_CHAIN_HOOK:
			for h := (netlink.Attributes{Rest: a.Value}); h.Next(); {
				if h.Kind == unix.NFTA_HOOK_HOOKNUM {
					hook := h.Number()
					hooked = hook == unix.NF_INET_PRE_ROUTING || hook == unix.NF_INET_LOCAL_IN || hook == unix.NF_INET_LOCAL_OUT
				}
			}
		}
	}
	return table, hooked, a.Err
}
