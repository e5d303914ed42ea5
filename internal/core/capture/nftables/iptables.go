//go:build linux

package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// HasChains reports whether one of the tables that the nft variant of iptables has for a family contains a chain
// whose name starts with prefix.
func (b *Backend) HasChains(family capture.Families, prefix string) (found bool, err error) {
	err = b.Dump(getChain, func(b *netlink.Batch) { b.Generic(protocolOf(family), 0) }, func(data []byte) error {
		a, _ := netlink.AttributesOf(data)
		c, err := decodeChain(a)
		found = found || slices.Contains(iptablesTables, c.table) && strings.HasPrefix(c.name, prefix)
		return err
	})
	if err != nil {
		return false, explain(fmt.Errorf("listing chains: %w", lacking(err)))
	}
	return found, nil
}

// lacking converts the error of a request or a list to that of a batch. If the kernel lacks a subsystem, it
// answers a request or a list with EINVAL (nfnetlink_rcv_msg), but a batch with EOPNOTSUPP, which is
// [Unsupported].
func lacking(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("the kernel has no nf_tables: %w", unix.EOPNOTSUPP)
	}
	return err
}

// iptablesTables are the names of the tables of iptables.
var iptablesTables = []string{"filter", "mangle", "nat", "raw", "security"}

// Counters returns the packets that each rule has counted, for the same chains as
// [Backend.HasChains]. No two tables contain a chain with the same name.
func (b *Backend) Counters(family capture.Families, prefix string) (map[string][]uint64, error) {
	packets := map[string][]uint64{}
	err := b.Dump(getRule, func(b *netlink.Batch) { b.Generic(protocolOf(family), 0) }, func(data []byte) error {
		a, _ := netlink.AttributesOf(data)
		table := ""
		for list := a; list.Next(); {
			if list.Kind == unix.NFTA_RULE_TABLE {
				table = list.Text()
			}
		}
		chain, n, err := decodeCount(a)
		if slices.Contains(iptablesTables, table) && strings.HasPrefix(chain, prefix) {
			packets[chain] = append(packets[chain], n)
		}
		return err
	})
	if err != nil {
		return nil, explain(fmt.Errorf("listing rules: %w", err))
	}
	return packets, nil
}
