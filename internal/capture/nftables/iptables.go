package nftables

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/netlink"
)

// Counters returns the packets that each rule has counted, for the chains of which
// [Backend.HasChains] reports whether there is one. No chain is in two tables.
func (b *Backend) Counters(family capture.Families, prefix string) (map[string][]uint64, error) {
	kernel := byte(unix.NFPROTO_IPV4)
	if family == capture.IPv6 {
		kernel = unix.NFPROTO_IPV6
	}
	packets := map[string][]uint64{}
	err := b.Dump(getRule, func(b *netlink.Batch) { b.Generic(kernel, 0) }, func(data []byte) error {
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
