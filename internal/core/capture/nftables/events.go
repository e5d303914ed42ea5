//go:build linux

package nftables

import (
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

// An Event is a change of one object, or the end of a transaction. The kernel reports events to the group
// NFNLGRP_NFTABLES.
type Event struct {
	Commits bool // the end of a transaction
	Ours    bool // an object of our table, or our table itself
	Shared  bool // an object of a table that the nft variant of iptables has, in which others have rules too
}

// DecodeEvent decodes a message of that group. It decodes every message to an event: what it cannot read may be
// ours.
func DecodeEvent(m netlink.Message) Event {
	if m.Kind>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return Event{}
	}
	if m.Kind&0xff == unix.NFT_MSG_NEWGEN {
		return Event{Commits: true}
	}
	list, _ := netlink.AttributesOf(m.Data)
	for list.Next() {
		if list.Kind == unix.NFTA_TABLE_NAME { // for all kinds of objects, attribute 1 is the name of their table
			name := list.Text()
			return Event{Ours: name == Table, Shared: slices.Contains(iptablesTables, name)}
		}
	}
	return Event{Ours: true, Shared: true}
}
