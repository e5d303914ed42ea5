// Package nftables writes capture's rule sets into the kernel by one netlink
// transaction, reads them back and removes them.
//
// Everything of ours is in one table, so a new rule set replaces the old one
// atomically: the transaction deletes the table and makes it anew, and every packet
// meets either the old rules or the new ones.
package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// Table is the name of our table, of family inet.
const Table = "outrider"

// A Backend talks to nf_tables in the network namespace of the thread that opened it.
type Backend struct {
	conn *nftables.Conn
}

// Open connects to the kernel.
func Open() (*Backend, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("opening netlink to nf_tables: %w", err)
	}
	return &Backend{conn: conn}, nil
}

// Close ends the connection.
func (b *Backend) Close() error { return b.conn.CloseLasting() }

// Name is "nftables".
func (b *Backend) Name() string { return capture.NFTables }

// Apply makes rs the only rule set of ours, in one transaction. On an error the
// kernel is as it was.
func (b *Backend) Apply(_ context.Context, rs capture.Ruleset) error {
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: Table}
	// Deleting a table that does not exist is an error; adding one that exists is not.
	b.conn.AddTable(table)
	b.conn.DelTable(table)
	b.conn.AddTable(table)
	for _, c := range rs.Chains {
		b.conn.AddChain(kernelChain(table, c))
	}
	sets := map[string]*nftables.Set{}
	for _, s := range rs.Sets {
		ks := kernelSet(table, s)
		if err := b.conn.AddSet(ks, nil); err != nil {
			return fmt.Errorf("describing set %s: %w", s.Name, err)
		}
		sets[s.Name] = ks
	}
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			exprs, err := compile(r, sets)
			if err != nil {
				return fmt.Errorf("chain %s, rule %q: %w", c.Name, r, err)
			}
			b.conn.AddRule(&nftables.Rule{
				Table: table, Chain: &nftables.Chain{Name: c.Name}, Exprs: exprs, UserData: comment(r.Reason),
			})
		}
	}
	if err := b.conn.Flush(); err != nil {
		return explain(fmt.Errorf("writing table inet %s: %w", Table, err))
	}
	return nil
}

// Remove deletes our table, if it is there.
func (b *Backend) Remove(context.Context) error {
	table, err := b.table()
	if errors.Is(err, capture.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	b.conn.DelTable(table)
	if err := b.conn.Flush(); err != nil {
		return explain(fmt.Errorf("deleting table inet %s: %w", Table, err))
	}
	return nil
}

// table returns our table as the kernel has it, or capture.ErrNone.
func (b *Backend) table() (*nftables.Table, error) {
	tables, err := b.conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, explain(fmt.Errorf("listing tables: %w", err))
	}
	for _, t := range tables {
		if t.Name == Table {
			return t, nil
		}
	}
	return nil, capture.ErrNone
}

// HasChains reports whether one of the tables that the nft variant of iptables has for a
// family has a chain whose name begins with prefix.
func (b *Backend) HasChains(family capture.Families, prefix string) (bool, error) {
	kernel := nftables.TableFamilyIPv4
	if family == capture.IPv6 {
		kernel = nftables.TableFamilyIPv6
	}
	chains, err := b.conn.ListChainsOfTableFamily(kernel)
	if err != nil {
		return false, explain(fmt.Errorf("listing chains: %w", err))
	}
	return slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return slices.Contains(iptablesTables, c.Table.Name) && strings.HasPrefix(c.Name, prefix)
	}), nil
}

// iptablesTables are the names of the tables of iptables.
var iptablesTables = []string{"filter", "mangle", "nat", "raw", "security"}

// Unsupported reports whether err says that the kernel lacks nf_tables or one of its
// expressions, so that another backend or a smaller set of rules may work.
func Unsupported(err error) bool {
	for _, e := range []unix.Errno{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func explain(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (it takes the capability NET_ADMIN)", err)
	}
	return err
}
