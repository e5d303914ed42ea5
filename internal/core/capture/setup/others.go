package setup

import (
	"fmt"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/nftables"
)

// maxNamed bounds the tables of other programs that an error names.
const maxNamed = 5

// blame adds to the error of a proof, whose rules are right, the tables of other programs that may take the traffic. It
// returns the error alone if there are none, or they cannot be listed.
func blame(err error, backend string) error {
	shared := backend == capture.IPTables
	names := iptables.LegacyOthers(shared)
	if b, failed := nftables.Open(); failed == nil {
		defer b.Close()
		others, _ := b.Others(maxNamed, shared)
		names = append(names, others...)
	}
	switch {
	case len(names) > 1:
		return fmt.Errorf("%w; another program's rules take the traffic: one of the tables %s", err, strings.Join(names, ", "))
	case len(names) == 1:
		return fmt.Errorf("%w; another program's rules take the traffic: table %s", err, names[0])
	case shared:
		return fmt.Errorf("%w; another program's rules may take the traffic, in a table of iptables", err)
	}
	return err
}
