//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// A Backend talks to nf_tables in the network namespace of the thread that opened it.
type Backend struct{ *netlink.Conn }

// Open connects to the kernel.
func Open() (*Backend, error) {
	c, err := netlink.Open(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening netlink to nf_tables: %w", err)
	}
	return &Backend{c}, nil
}

// Name returns "nftables".
func (b *Backend) Name() string { return capture.NFTables }

// The messages of nf_tables in use, and their flags:
const (
	subsystem   = unix.NFNL_SUBSYS_NFTABLES << 8
	newTable    = subsystem | unix.NFT_MSG_NEWTABLE
	getTable    = subsystem | unix.NFT_MSG_GETTABLE
	delTable    = subsystem | unix.NFT_MSG_DELTABLE
	newChain    = subsystem | unix.NFT_MSG_NEWCHAIN
	getChain    = subsystem | unix.NFT_MSG_GETCHAIN
	newRule     = subsystem | unix.NFT_MSG_NEWRULE
	getRule     = subsystem | unix.NFT_MSG_GETRULE
	newSet      = subsystem | unix.NFT_MSG_NEWSET
	getSet      = subsystem | unix.NFT_MSG_GETSET
	newElements = subsystem | unix.NFT_MSG_NEWSETELEM
	getElements = subsystem | unix.NFT_MSG_GETSETELEM

	create = unix.NLM_F_REQUEST | unix.NLM_F_CREATE
)

// Apply replaces our rule set by rs, in one transaction. On an error, the kernel's rules do not change, unless
// the error says that the kernel's answer was lost.
func (b *Backend) Apply(_ context.Context, rs capture.Ruleset) error {
	// If a transaction deletes, the process cannot exit until the kernel has freed the deleted
	// objects, which takes half the time of a run. So the first table is only added.
	absent := b.Get(getTable, ours, func([]byte) error { return nil })
	err := b.Commit(unix.NFNL_SUBSYS_NFTABLES, func(to *netlink.Batch) {
		b := batch{to}
		if errors.Is(absent, unix.ENOENT) {
			b.table(newTable, create|unix.NLM_F_EXCL)
		} else {
			// It is an error to delete a table that does not exist, but not to add one that exists.
			b.table(newTable, create)
			b.table(delTable, unix.NLM_F_REQUEST)
			b.table(newTable, create)
		}
		ids := setIDs{}
		for _, s := range rs.Sets {
			ids[s.Name] = uint32(len(ids) + 1)
			b.set(s, ids[s.Name])
		}
		for _, c := range rs.Chains {
			b.chain(c)
		}
		for _, c := range rs.Chains {
			for _, r := range c.Rules {
				b.rule(c.Name, r, ids)
			}
		}
	})
	if err != nil {
		return explain(fmt.Errorf("writing table inet %s: %w", Table, err))
	}
	return nil
}

// A batch encodes our objects as messages.
type batch struct{ *netlink.Batch }

// ours appends the header of a message about our table, or about an object in it.
func ours(b *netlink.Batch) {
	b.Generic(unix.NFPROTO_INET, 0)
	b.Text(unix.NFTA_TABLE_NAME, Table) // for all kinds of objects, attribute 1 is the name of their table
}

func (b batch) table(kind, flags uint16) {
	b.Message(kind, flags, "", func() { ours(b.Batch) })
}

func (b batch) chain(c capture.Chain) {
	b.Message(newChain, create, "chain "+c.Name, func() {
		ours(b.Batch)
		b.Text(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Hook == capture.NoHook {
			return
		}
		b.Nest(unix.NLA_F_NESTED|unix.NFTA_CHAIN_HOOK, func() {
			b.Number(unix.NFTA_HOOK_HOOKNUM, hooks[c.Hook])
			b.Number(unix.NFTA_HOOK_PRIORITY, uint32(priorities[c.Table]))
		})
		b.Number(unix.NFTA_CHAIN_POLICY, nfAccept)
		b.Text(unix.NFTA_CHAIN_TYPE, chainType(c))
	})
}

func (b batch) rule(chain string, r capture.Rule, ids setIDs) {
	exprs, err := compile(r, ids)
	if err != nil {
		b.Err = errors.Join(b.Err, fmt.Errorf("chain %s, rule %q: %w", chain, r, err))
		return
	}
	b.Message(newRule, create|unix.NLM_F_APPEND, "a rule of chain "+chain, func() {
		ours(b.Batch)
		b.Text(unix.NFTA_RULE_CHAIN, chain)
		b.Nest(unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, func() {
			for _, e := range exprs {
				b.expression(e)
			}
		})
		b.Attribute(unix.NFTA_RULE_USERDATA, comment(r.Reason))
	})
}

// Remove deletes our table, if it exists.
func (b *Backend) Remove(context.Context) error {
	err := b.Commit(unix.NFNL_SUBSYS_NFTABLES, func(to *netlink.Batch) {
		b := batch{to}
		b.table(newTable, create)
		b.table(delTable, unix.NLM_F_REQUEST)
	})
	if err != nil && !Unsupported(err) {
		return explain(fmt.Errorf("deleting table inet %s: %w", Table, err))
	}
	return nil
}

// Unsupported reports whether err means that the kernel lacks nf_tables or one of its expressions,
// so that another backend or a smaller rule set may work.
func Unsupported(err error) bool {
	for _, e := range []unix.Errno{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func explain(err error) error {
	if err != nil && errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (it takes the capability NET_ADMIN)", err)
	}
	return err
}
