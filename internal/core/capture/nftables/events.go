//go:build linux

package nftables

import (
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

// EndsTransaction reports whether a message that the kernel sends to the group NFNLGRP_NFTABLES is the end of a
// transaction. Every other one is about a change of one object, in any table.
func EndsTransaction(m netlink.Message) bool {
	return m.Kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN
}
