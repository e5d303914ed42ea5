package capture_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/mutants"
	"outrider.dev/test/scenario"
)

// Every mutation of parking.go must change where some connection ends, what the kernel remembers of
// it, or a note.
func TestParkingMutants(t *testing.T) {
	list := maps.Clone(parkingMutants)
	for name, m := range list {
		if m.File == "" {
			m.File = "parking.go"
		}
		list[name] = m
	}
	mutants.Run(t, "TestScenarios|TestTraceLeavesBehind|TestNotes|TestParkingRemembers", list)
}

const (
	parks       = `in.Park != ParkOff && (in.ParkPorts.All || len(in.parkedPorts()) > 0)`
	transparent = `in.captures() && in.Mode == TProxyMode && b.limited()`
	parkListed  = `input.ports("parked-ports", "port %s: is there a listener?", jump(g.chain), g.ports, syn)`
	parkUDP     = `slices.Contains(g.ports, contract.DNSPort) && b.in.captures()`
	parkOthers  = `input.add("any other port: is there a listener?", jump(g.chain), syn)`
	apart       = `!byPort || b.remembersTProxy() && p == b.in.InboundPort`
	single      = `len(rest.ports) == 1 && !rest.all`
	keyed       = "func (b *builder) setsOf(g parkGroup) absence {\n\tswitch {\n\tcase b.hasSets()"
	others      = `return b.sets("", ByFamilyPort, g.size())`
	maySend     = `out.add("may release ports: "+who, jump("release"), append([]Match{oif("lo"), to(addr), udp, sport(releasePort)}, owner...)...)`
	refuseFrom  = `releasable(l, g, "%s is released: refuse from now on", onSet(Update, g.sets.gone))`
	parkingEnds = `releasable(l, g, "%s is released: parking ends", onSet(Delete, g.sets.parking))`
)

var parkingMutants = map[string]mutants.Mutant{
	"-o exempts the agent's outbound proof":        {File: "agentproof.go", From: `p >= contract.ProbePort && p < contract.ProbePort+contract.ProofPorts`, To: `false`},
	"-x exempts the agent's outbound proof":        {File: "agentproof.go", From: `slices.ContainsFunc(proofsOut, p.Overlaps)`, To: `false`},
	"-i exempts the agent's outbound proof":        {File: "agentproof.go", From: `!in.OutboundRanges.All && !in.OutboundPorts.All`, To: `false`},
	"-c exempts the agent's outbound proof":        {File: "agentproof.go", From: `len(in.ExcludeInterfaces) > 0`, To: `false`},
	"groups exempt the agent's outbound proof":     {File: "agentproof.go", From: `!in.OwnerGroups.All`, To: `false`},
	"an excluded group exempts the agent's proof":  {File: "agentproof.go", From: `slices.Contains(in.ProxyGIDs, group)`, To: `false`},
	"-o or -d exempts the agent's inbound proof":   {File: "agentproof.go", From: `slices.Contains(excluded, contract.ProbePort)`, To: `false`},
	"-e exempts the agent's inbound proof":         {File: "agentproof.go", From: `in.TunnelPort == contract.ProbePort`, To: `false`},
	"loopback exempts the agent's inbound proof":   {File: "agentproof.go", From: `in.Loopback.Contains(contract.ProofInbound)`, To: `false`},
	"-c lo exempts the agent's inbound proof":      {File: "agentproof.go", From: `pattern == "lo"`, To: `false`},
	"-c l+ exempts the agent's inbound proof":      {File: "agentproof.go", From: `wild && strings.HasPrefix("lo", prefix)`, To: `false`},
	"TPROXY: -b exempts the agent's inbound proof": {File: "agentproof.go", From: `!in.InboundPorts.All || in.ExcludeInboundPorts.All`, To: `false`},
	"the proof's port loops":                       {File: "agentproof.go", From: `not(from(p))`, To: `to(p)`},
	"parking cannot be switched off":               {File: "intent.go", From: parks, To: `in.ParkPorts.All || len(in.parkedPorts()) > 0`},
	"'*' alone parks nothing":                      {File: "intent.go", From: parks, To: `in.Park != ParkOff && len(in.parkedPorts()) > 0`},
	"rules without ports":                          {File: "intent.go", From: parks, To: `in.Park != ParkOff`, Tests: "TestNothingToDoIsAnEmptyRuleset"},
	"no proof with parking":                        {In: "if in.captures() {\n\t\tb.proofArrivals", From: `in.captures()`, To: `false`},
	"a proof without capture":                      {In: "if in.captures() {\n\t\tb.proofArrivals", From: `in.captures()`, To: `true`, Tests: "TestParkOnlyHasNoProof"},
	"TPROXY: a listener clears nothing":            {From: transparent, To: `false`},
	"TPROXY: parking alone clears":                 {From: transparent, To: `in.Mode == TProxyMode && b.limited()`, Tests: "TestParkOnlyHasNoProof"},
	"REDIRECT clears by the mark":                  {From: transparent, To: `in.captures() && b.limited()`, Tests: "TestExplainIsAsWrittenDown"},
	"TPROXY: clearing without a limit":             {From: transparent, To: `in.captures() && in.Mode == TProxyMode`, Tests: "TestRulesetsAreWellFormed"},
	"connections in progress are parked":           {From: parkListed, To: `input.ports("parked-ports", "port %s: is there a listener?", jump(g.chain), g.ports, tcp)`},
	"all ports are parked as the first":            {From: parkListed, To: `input.ports("parked-ports", "port %s: is there a listener?", jump("park"), g.ports, syn)`, Tests: "TestRulesetsAreWellFormed"},
	"DNS by UDP is not parked":                     {From: parkUDP, To: `false`},
	"UDP is parked on every port":                  {From: parkUDP, To: `b.in.captures()`, Tests: "TestExplainIsAsWrittenDown"},
	"UDP is parked without capture":                {From: parkUDP, To: `slices.Contains(g.ports, contract.DNSPort)`, Tests: "TestParkOnlyHasNoProof"},
	"'*' parks status ports":                       {From: `input.ports("status-ports", "status port %s is never parked", leave, statusPorts, tcp)`, To: ``},
	"'*' parks no other port":                      {From: parkOthers, To: ``},
	"'*' parks connections in progress":            {From: parkOthers, To: `input.add("any other port: is there a listener?", jump(g.chain), tcp)`},
	"ports share one memory":                       {From: others, To: `return b.sets("", ByFamily, 0)`},
	"one port's memory is by port":                 {From: `b.sets(fmt.Sprintf("-%d", p), ByFamily, 0)`, To: `b.sets(fmt.Sprintf("-%d", p), ByFamilyPort, 0)`},
	"'*' of iptables has a memory":                 {In: keyed, From: `b.hasSets()`, To: `true`},
	"'*' of nftables has none":                     {In: keyed, From: `b.hasSets()`, To: `b.hasSets() && len(g.ports) > 2`},
	"no port is apart":                             {From: apart, To: `!byPort`, Tests: "TestParkingRemembers|TestTraceLeavesBehind"},
	"with TPROXY every port is apart":              {From: apart, To: `!byPort || b.remembersTProxy()`},
	"iptables has a group":                         {From: apart, To: `b.remembersTProxy() && p == b.in.InboundPort`, Tests: "TestParkedPortsTakeIPSet"},
	"a single port has a group":                    {From: single, To: `false`},
	"'*' is parked as a single port":               {From: single, To: `len(rest.ports) == 1`},
	"a note about no limit":                        {In: "case b.limited():\n\t\tb.note", From: `b.limited()`, To: `true`},
	"no note about a limit":                        {In: "case b.limited():\n\t\tb.note", From: `b.limited()`, To: `false`},
	"no release":                                   {In: "if b.limited() {\n\t\tb.release", From: `b.limited()`, To: `false`},
	"a release without a limit":                    {In: "if b.limited() {\n\t\tb.release", From: `b.limited()`, To: `true`, Tests: "TestRulesetsAreWellFormed"},
	"never a limit":                                {In: `bool { return b.in.ParkLimit > 0 }`, From: `b.in.ParkLimit > 0`, To: `false`},
	"always a limit":                               {In: `bool { return b.in.ParkLimit > 0 }`, From: `b.in.ParkLimit > 0`, To: `true`},
	"a memory without a limit":                     {In: "if !b.limited() {\n\t\treturn absence{}", From: `!b.limited()`, To: `false`},
	"the limit is another time":                    {In: `Timeout: b.in.ParkLimit,`, From: `b.in.ParkLimit`, To: `2 * b.in.ParkLimit`},
	"the memory is as long as the limit":           {From: `max(forgetAbsence, 2*b.in.ParkLimit)`, To: `b.in.ParkLimit`},
	"the memory is shorter than a long limit":      {From: `max(forgetAbsence, 2*b.in.ParkLimit)`, To: `forgetAbsence`},
	"the memory of a short limit is short":         {From: `max(forgetAbsence, 2*b.in.ParkLimit)`, To: `2 * b.in.ParkLimit`},
	"without a memory a listener is refused":       {From: `l.add("there is a listener", leave, socket)`, To: ``},
	"without a memory nothing is parked":           {In: "l.add(ReasonParked, drop)\n\t\treturn", From: `l.add(ReasonParked, drop)`, To: ``},
	"a listener clears at every connection":        {From: `l.add("there is a listener", leave, socket, not(in(sets.gone)))`, To: ``, Survives: "the rules after it clear what is not there: it saves their time"},
	"a listener after an absence clears nothing":   {From: `l.add("there is a listener", leave, socket, not(in(sets.gone)))`, To: `l.add("there is a listener", leave, socket)`},
	"a listener leaves the limit running":          {From: `l.add("the listener is back", onSet(Delete, sets.parking), socket)`, To: ``},
	"a listener leaves the absence":                {From: `l.add("the listener is back", onSet(Delete, sets.gone), socket)`, To: ``},
	"a connection to a listener goes on to park":   {From: `l.add("the listener is back", leave, socket)`, To: ``},
	"clearing without a listener":                  {From: `l.add("the listener is back", onSet(Delete, sets.gone), socket)`, To: `l.add("the listener is back", onSet(Delete, sets.gone))`},
	"every attempt after the limit":                {From: `l.add(ReasonParked, drop, in(sets.parking))`, To: ``},
	"no attempt after the limit":                   {From: `l.add(ReasonParked, drop, in(sets.parking))`, To: `l.add(ReasonParked, drop, in(sets.gone))`},
	"an absence is forgotten while it lasts":       {From: `l.add("the absence goes on", onSet(Update, sets.gone), in(sets.gone))`, To: ``, Tests: "TestExplainIsAsWrittenDown"},
	"the limit starts anew":                        {From: `l.add(ReasonOver, over, in(sets.gone))`, To: ``},
	"the first attempt is refused":                 {From: `l.add(ReasonOver, over, in(sets.gone))`, To: `l.add(ReasonOver, over)`},
	"an absence is not remembered":                 {From: `l.add("an absence begins", onSet(Add, sets.gone))`, To: ``},
	"the limit does not start":                     {From: `l.add("an absence begins", onSet(Add, sets.parking))`, To: ``},
	"the first attempt goes on":                    {From: `l.add(ReasonFirst, drop)`, To: ``},
	"TPROXY: parking cannot be switched off":       {From: `b.in.Park == ParkOff`, To: `false`},
	"TPROXY: a note about iptables for nftables":   {In: "if b.rs.Backend == IPTables {\n\t\t\tb.note", From: `b.rs.Backend == IPTables`, To: `true`},
	"TPROXY: no note about --park=off":             {In: "if b.rs.Backend == IPTables {\n\t\t\tb.note", From: `b.rs.Backend == IPTables`, To: `false`},
	"TPROXY: --park=off reaches the app":           {From: `l.add("no listener: to be refused", setMark(refuseMark))`, To: ``},
	"TPROXY: a limit without end":                  {From: `b.limited() && b.rs.Backend == NFTables`, To: `false`},
	"TPROXY: iptables counts a limit":              {From: `b.limited() && b.rs.Backend == NFTables`, To: `b.limited()`, Tests: "TestScenarios|TestNotes"},
	"TPROXY: a limit that is not set":              {From: `b.limited() && b.rs.Backend == NFTables`, To: `b.rs.Backend == NFTables`, Tests: "TestRulesetsAreWellFormed"},
	"TPROXY: the memory of another port":           {From: `b.absent(l, b.sets(fmt.Sprintf("-%d", port), ByFamily, 0), jump("gone-for-good"))`, To: `b.absent(l, b.sets("-tproxy", ByFamily, 0), jump("gone-for-good"))`},
	"TPROXY: after the limit it reaches the app":   {From: `refuse.add("the proxy is gone: to be refused", setMark(refuseMark))`, To: ``},
	"TPROXY: a note about no limit":                {In: "if b.limited() {\n\t\t\tb.note", From: `b.limited()`, To: `true`},
	"TPROXY: no note about a limit":                {In: "if b.limited() {\n\t\t\tb.note", From: `b.limited()`, To: `false`},
	"TPROXY: without a limit it reaches the app":   {In: "l.add(ReasonParked, drop)\n\t}\n}", From: `l.add(ReasonParked, drop)`, To: ``},
	"TPROXY: iptables clears":                      {From: `b.rs.Backend != NFTables`, To: `false`},
	"TPROXY: every packet clears":                  {From: `[]Match{syn, mark(b.in.TProxyMark)}`, To: `[]Match{mark(b.in.TProxyMark)}`},
	"TPROXY: an untaken connection clears":         {From: `[]Match{syn, mark(b.in.TProxyMark)}`, To: `[]Match{syn}`},
	"TPROXY: a listener leaves the limit":          {From: `input.add("the proxy has taken a connection", onSet(Delete, sets.parking), append(taken, in(sets.parking))...)`, To: ``},
	"TPROXY: a listener leaves the absence":        {From: `input.add("the proxy has taken a connection", onSet(Delete, sets.gone), append(taken, in(sets.gone))...)`, To: ``},
	"root may not release":                         {From: `owners, words = append(owners, Match{Key: UID, Num: 0}), append(words, "root")`, To: ``},
	"with --park-only the app may not release":     {From: `b.in.ParkOnly`, In: "if b.in.ParkOnly {\n\t\tmay", To: `false`},
	"the app may release":                          {From: maySend, To: `out.add("may release ports: "+who, jump("release"), oif("lo"), to(addr), udp, sport(releasePort))`},
	"other pods are sent a release":                {From: maySend, To: `out.add("may release ports: "+who, jump("release"), append([]Match{to(addr), udp, sport(releasePort)}, owner...)...)`, Survives: "both addresses are always on lo"},
	"any address releases":                         {From: maySend, To: `out.add("may release ports: "+who, jump("release"), append([]Match{oif("lo"), udp, sport(releasePort)}, owner...)...)`},
	"a release by TCP":                             {From: maySend, To: `out.add("may release ports: "+who, jump("release"), append([]Match{oif("lo"), to(addr), sport(releasePort)}, owner...)...)`, Survives: "the rules of the chain release are for UDP alone"},
	"a release refuses nothing":                    {From: refuseFrom, To: ``},
	"a release refuses every port":                 {From: refuseFrom, To: `l.add("port is released: refuse from now on", onSet(Update, g.sets.gone), udp)`},
	"any port releases":                            {From: maySend, To: `out.add("may release ports: "+who, jump("release"), append([]Match{oif("lo"), to(addr), udp}, owner...)...)`},
	"a release is not confirmed":                   {From: `releasable(l, g, "%s is released: the drop tells the sender", drop)`, To: ``},
	"with '*' a status port is released":           {From: `l.ports("status-ports", "status port %s is never parked", leave, statusPorts, udp)`, To: ``},
	"with '*' the listed ports alone are released": {In: "if g.all {\n\t\tl.add(fmt", From: `g.all`, To: `false`},
	"a release without sets":                       {From: `g.all && !b.hasSets()`, To: `false`, Tests: "TestRulesetsAreWellFormed"},
	"a release leaves the limit":                   {From: parkingEnds, To: ``},
	"a release ends every limit":                   {From: parkingEnds, To: `l.add("port is released: parking ends", onSet(Delete, g.sets.parking), udp)`},
}

func TestParkingRemembers(t *testing.T) {
	const (
		outbound = "parking-15001 meta nfproto 1m0s, gone-15001 meta nfproto 5m0s"
		inbound  = "parking-15006 meta nfproto 1m0s, gone-15006 meta nfproto 5m0s"
		both     = outbound + ", " + inbound
		byPort   = "parking meta nfproto . th dport 1m0s, gone meta nfproto . th dport 5m0s"
	)
	hour := strings.NewReplacer("1m0s", "1h0m0s", "5m0s", "2h0m0s").Replace
	tests := map[string]struct{ nft, ipt string }{
		"":                               {byPort, both},
		"-m TPROXY -b *":                 {inbound + ", " + outbound, both},
		"-m TPROXY -b * --park-ports 80": {inbound + ", " + byPort, "parking-80 meta nfproto 1m0s, gone-80 meta nfproto 5m0s, " + both},
		"--park-ports *":                 {byPort, both},
		"--park-limit 0":                 {"", ""},
		"--park-limit 1h":                {hour(byPort), hour(both)},
		"--park=off":                     {"", ""},
		"--park-only -p 15001 -z 15001 -m TPROXY": {outbound, outbound},
	}
	for flags, want := range tests {
		t.Run(flags, func(t *testing.T) {
			for backend, want := range map[string]string{capture.NFTables: want.nft, capture.IPTables: want.ipt} {
				var got []string
				for _, s := range build(t, scenario.Scenario{Flags: strings.Fields(flags)}, backend).Sets {
					if s.Constant() {
						continue
					}
					got = append(got, fmt.Sprint(s.Name, " ", s.Key, " ", s.Timeout))
				}
				if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", backend, diff)
				}
			}
		})
	}
}

// A capture with ParkOnly has nothing to prove, and leaves all protocols except TCP to the other
// mesh.
func TestParkOnlyHasNoProof(t *testing.T) {
	for _, flags := range []string{"--park-only", "--park-only -m TPROXY -i * -b *", "--park-only --redirect-dns --park-ports 15053"} {
		for _, backend := range backends {
			rs := build(t, scenario.Scenario{Flags: strings.Fields(flags)}, backend)
			for _, r := range rs.Chain("input").Rules {
				if r.Action.Verb == capture.Reject || r.Action.Verb == capture.Delete || slices.Contains(r.Match, capture.Match{Key: capture.Protocol, Num: capture.UDP}) {
					t.Errorf("flags %q, %s: %s # %s", flags, backend, r, r.Reason)
				}
			}
		}
	}
}
