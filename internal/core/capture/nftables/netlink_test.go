package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
	"outrider.dev/test/ns"
)

// long returns a rule set with lists of n ports and 2n ranges.
func long(n int) capture.Ruleset {
	in := capture.Defaults()
	in.Families, in.OutboundRanges.All = capture.DualStack, true
	for i := range n {
		in.ExcludeOutboundPorts = append(in.ExcludeOutboundPorts, uint16(20000+2*i))
		in.ExcludeOutboundRanges = append(in.ExcludeOutboundRanges,
			netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/25", i>>8, i&255)), netip.MustParsePrefix(fmt.Sprintf("fd01:%x::/33", i)))
	}
	rs, _ := capture.Build(in, capture.NFTables)
	return rs
}

// tiny gives the socket the smallest buffers that the kernel allows.
func tiny(t *testing.T, b *Backend) {
	t.Helper()
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		if err := unix.SetsockoptInt(b.FD, unix.SOL_SOCKET, option, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSmallBuffers(t *testing.T) {
	ns.New(t).Do(func() {
		b, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		tiny(t, b)
		want := long(5000)
		if err := b.Apply(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		tiny(t, b)
		got, err := b.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.Routing = want.Routing
		if diff := capture.Diff(want, got.Ruleset); diff != nil {
			t.Errorf("(- missing, + unexpected):\n%s", strings.Join(diff, "\n"))
		}

		// A thousand errors overflow the receive buffer. Apply returns the first one, and the rules
		// do not change.
		bad := want
		bad.Chains = append([]capture.Chain{}, want.Chains...)
		for range 1000 {
			bad.Chains[0].Rules = append(bad.Chains[0].Rules, capture.Rule{Action: capture.Action{Verb: capture.Goto, Name: "nowhere"}})
		}
		tiny(t, b)
		if err := b.Apply(t.Context(), bad); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "a rule of chain "+bad.Chains[0].Name) {
			t.Errorf("Apply of rules that go nowhere: %v", err)
		}
		again, err := b.Read(t.Context())
		again.Routing = want.Routing
		if diff := capture.Diff(want, again.Ruleset); err != nil || diff != nil {
			t.Errorf("after an error: %v, %q", err, diff)
		}
	})
}

// A table that another program has filled is read no further than ours may be long, and counts as damaged. After a list
// that is given up, at its first entry here, the connection is of use.
func TestTableThatIsTooLong(t *testing.T) {
	ns.New(t).Do(func() {
		b, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if err := b.Apply(t.Context(), long(15000)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var damaged *capture.DamagedError
			if _, err := b.Read(t.Context()); !errors.As(err, &damaged) || !strings.Contains(err.Error(), "2 MiB") {
				t.Fatalf("%v; want what is damaged", err)
			}
			enough := errors.New("enough")
			err := b.Dump(getElements, func(to *netlink.Batch) {
				ours(to)
				to.Text(unix.NFTA_SET_ELEM_LIST_SET, "excluded-out-ports")
			}, func([]byte) error { return enough })
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
		}
		if err := b.Apply(t.Context(), long(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// In a user namespace the kernel limits the send buffer. A transaction that does not fit has no
// effect; its error says what would help.
func TestTransactionThatDoesNotFit(t *testing.T) {
	ns.New(t).Do(func() {
		b, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		b.Force = false
		const size = 1 << 30
		if err := b.Fit(size); !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(err.Error(), "net.core.wmem_max") {
			t.Errorf("a transaction of 1 GiB: %v", err)
		}
		if err := b.Apply(t.Context(), long(1000)); err != nil {
			t.Errorf("a transaction that fits: %v", err)
		}
	})
}

// A kernel without nf_tables gives the same answer as for a subsystem that no kernel has. Other
// backends are tried then.
func TestKernelWithoutTables(t *testing.T) {
	ns.New(t).Do(func() {
		b, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		const none = unix.NFNL_SUBSYS_COUNT + 1
		generic := func(b *netlink.Batch) { b.Generic(unix.NFPROTO_INET, 0) }
		nothing := func([]byte) error { return nil }
		for what, err := range map[string]error{ // any order: the cases are independent
			"a list":    b.Dump(none<<8, generic, nothing),
			"a request": b.Get(none<<8, generic, nothing),
			"a batch":   b.Commit(none, func(b *netlink.Batch) { b.Message(none<<8, create, "", func() {}) }),
		} {
			if err == nil || !Unsupported(lacking(err)) {
				t.Errorf("%s of a subsystem that the kernel lacks: %v", what, err)
			}
		}
	})
}
