package watch

import (
	"testing"

	"outrider.dev/test/mutants"
)

// A capture is repaired only if its change counts as one, and not as the agent's own.
func TestMutants(t *testing.T) {
	const of = "messages.go"
	mutants.Run(t, "TestWhatIsAChange|TestOneTransaction|TestMessagesOfContainers", map[string]mutants.Mutant{
		"a transaction in progress belongs to the one before": {File: of, From: `c.commits == 1 && !c.open && !c.lost`, To: `c.commits == 1 && !c.lost`},
		"two transactions are one":                            {File: of, From: `c.commits == 1 && !c.open && !c.lost`, To: `c.commits >= 1 && !c.open && !c.lost`},
		"lost messages are none":                              {File: of, From: `c.commits == 1 && !c.open && !c.lost`, To: `c.commits == 1 && !c.open`},
		"containers write events":                             {File: of, From: `sender == nil || sender.Pid != 0`, To: `sender == nil`},
		"a full buffer is no change":                          {File: of, In: "case err != nil, n > len(w.buffer):\n\t\t\tgot.lost = true", From: `got.lost = true`, To: ``},
		"routing rules do not matter":                         {File: of, In: "unix.RTM_DELRULE:\n\t\treturn true", From: `return true`, To: `return false`},
		"each route matters":                                  {File: of, From: `m.Data[protocol] == capture.RouteProtocol`, To: `true`},
		"each interface matters":                              {File: of, In: "return index(m.Data) == loopback", From: `index(m.Data) == loopback`, To: `true`},
	})
}
