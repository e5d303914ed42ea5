package iptables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
	"outrider.dev/test/tier"
)

// pick returns some of the values, in random order.
func pick[T any](r *rand.Rand, values ...T) []T {
	r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values[:r.IntN(len(values)+1)]
}

func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func anyPorts(r *rand.Rand, values ...uint16) capture.Ports {
	if r.IntN(3) == 0 {
		return capture.Ports{All: true}
	}
	return capture.Ports{List: pick(r, values...)}
}

// anyIntent returns a random intent; over many calls, every setting of the flags occurs.
func anyIntent(r *rand.Rand) capture.Intent {
	ranges := func() []netip.Prefix {
		return pick(r, prefixes("10.0.0.0/8", "fd00::/8", "0.0.0.0/0", "::/0", "192.168.3.4/32", "2001:db8::1/128", "127.0.0.0/8", "::ffff:0:0/96")...)
	}
	in := capture.Defaults()
	in.Mode = one(r, capture.RedirectMode, capture.RedirectMode, capture.TProxyMode, capture.NoneMode)
	in.ProxyUIDs, in.ProxyGIDs = pick(r, uint32(1337), 1, 7), pick(r, uint32(1337), 2, 9)
	in.InboundPorts = anyPorts(r, 80, 8080, 15020, 443)
	in.ExcludeInboundPorts = anyPorts(r, 22, 15090, 9000)
	in.OutboundRanges = capture.Ranges{All: r.IntN(3) == 0}
	if !in.OutboundRanges.All {
		in.OutboundRanges.List = ranges()
	}
	in.ExcludeOutboundRanges = ranges()
	in.OutboundPorts = anyPorts(r, 80, 443)
	in.ExcludeOutboundPorts = pick(r, uint16(25), 3306)
	in.OwnerGroups = one(r, capture.Groups{All: true}, capture.Groups{List: []uint32{5, 3, 8}})
	in.ExcludeOwnerGroups = pick(r, uint32(50), 51)
	in.ExcludeInterfaces = pick(r, "eth1", "a'b", "net1.7@x")
	in.VirtualInterfaces = pick(r, "virt0", "virt1")
	in.Loopback = one(r, prefixes("127.0.0.1/32", "127.0.0.0/8")...)
	in.DNS = one(r, capture.DNSOff, capture.DNSServers, capture.DNSAll)
	for _, p := range pick(r, "10.0.0.10", "fd00::10", "10.0.0.11", "fd00::11") {
		in.Nameservers = append(in.Nameservers, netip.MustParseAddr(p))
	}
	in.DropInvalid = r.IntN(2) == 0
	in.Families = one(r, capture.IPv4, capture.IPv6, capture.DualStack, capture.DualStack)
	in.Park = one(r, capture.ParkOff, capture.ParkOn, capture.ParkRequire)
	in.ParkPorts = anyPorts(r, 8080, 15001, 5432)
	in.ParkLimit = one(r, 0, time.Second, time.Minute, time.Hour)
	in.ParkOnly = r.IntN(5) == 0
	return in
}

// render returns the text of a rule set for both families.
func render(t testing.TB, rs capture.Ruleset) (four, six string) {
	t.Helper()
	text := func(family capture.Families) string {
		o, err := express(rs, family, 'a')
		if err != nil {
			t.Fatalf("express for %s: %v", family, err)
		}
		return change(owned{}, o)
	}
	return text(capture.IPv4), text(capture.IPv6)
}

// parse parses the output of iptables-save for both families.
func parse(v4, v6 string) (capture.State, error) {
	four, err4 := scan(v4)
	six, err6 := scan(v6)
	if err := errors.Join(err4, err6); err != nil {
		return capture.State{}, err
	}
	return assemble(four, six, someSets)
}

// someSets contains the kernel's sets to which the parsed rules of these tests refer.
var someSets = map[string]ipset.Set{
	"outrider-a-ports": {Name: "outrider-a-ports", Type: "bitmap:port", Ports: []capture.Interval[uint32]{{First: 1, Last: 9}}},
	"outrider-a-four":  {Name: "outrider-a-four", Type: "hash:net", Family: unix.AF_INET, Addresses: ranges("10.0.0.0/8")},
	"outrider-a-six":   {Name: "outrider-a-six", Type: "hash:net", Family: unix.AF_INET6, Addresses: ranges("fd00::/8", "fe80::/10")},
}

func ranges(list ...string) (out []capture.Interval[netip.Addr]) {
	for _, p := range prefixes(list...) {
		out = append(out, capture.Range(p))
	}
	return out
}

// sameRules fails the test unless got, with want's routing, equals want and has a correct record.
func sameRules(t testing.TB, want capture.Ruleset, got capture.State) {
	t.Helper()
	got.Routing = want.Routing
	if diff := capture.Diff(want, got.Ruleset); diff != nil {
		t.Fatalf("rules read back (-want +got):\n%s", strings.Join(diff, "\n"))
	}
	if record, intact := got.Recorded(); !intact {
		t.Fatalf("record %q is not that of\n%s", record, got)
	}
	for _, c := range got.Chains {
		if len(got.Packets[c.Name]) != len(c.Rules) {
			t.Fatalf("chain %s: %d counters for %d rules", c.Name, len(got.Packets[c.Name]), len(c.Rules))
		}
	}
}

func TestWhatIsRenderedIsReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	intents := tier.Times(150, 600)
	t.Logf("%d intents, 600 with OUTRIDER_NIGHTLY=1", intents)
	for range intents {
		rs, _ := capture.Build(anyIntent(r), capture.IPTables)
		four, six := render(t, rs)
		got, err := parse(four, six)
		if len(rs.Chains) == 0 {
			if !errors.Is(err, capture.ErrNone) {
				t.Fatalf("parse of nothing: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("parse: %v\n%s", err, four)
		}
		sameRules(t, rs, got)
	}
}

// line builds a rule set with one chain and one rule, and returns the rendered rule.
func line(t *testing.T, r capture.Rule) (string, error) {
	t.Helper()
	rs := capture.Ruleset{
		Backend: capture.IPTables, Families: capture.DualStack,
		Sets:   []capture.Set{{Name: "gone-1", Timeout: time.Minute}},
		Chains: []capture.Chain{{Name: "x", Table: capture.Filter, Rules: []capture.Rule{r}}},
	}
	if r.Action.Name == "" || r.Action.Verb == capture.Goto {
		rs.Sets = nil
	}
	o, err := express(rs, capture.IPv4, 'a')
	if err != nil {
		return "", err
	}
	return o.at(capture.Filter).rules["OUTRIDER_X"][0].spec, nil
}

func TestRulesAsIptablesWritesThem(t *testing.T) {
	in := capture.Match{Key: capture.InSet, Name: "gone-1"}
	notIn := in
	notIn.Not = true
	reject := capture.Action{Verb: capture.Reject}
	leave := capture.Action{Verb: capture.Return}
	tests := map[string]struct {
		rule capture.Rule
		want string
	}{
		"the begin of a connection is TCP": {
			capture.Rule{Match: []capture.Match{{Key: capture.SYN}, {Key: capture.DestPort, Num: 1}}, Action: capture.Action{Verb: capture.Goto, Name: "park-1"}, Reason: `it's "x"`},
			`-p tcp -m tcp --dport 1 --tcp-flags FIN,SYN,RST,ACK SYN -m comment --comment "it\'s \"x\"" -g OUTRIDER_PARK_1`,
		},
		"negations of one kind have a module each": {
			capture.Rule{Match: []capture.Match{{Key: capture.GID, Num: 1, Not: true}, {Key: capture.GID, Num: 2, Not: true}}, Action: leave, Reason: "a"},
			"-m owner ! --gid-owner 1 -m owner ! --gid-owner 2 -m comment --comment a -j RETURN",
		},
		"conditions on addresses and interfaces come first": {
			capture.Rule{Family: capture.IPv4, Match: []capture.Match{
				{Key: capture.Protocol, Num: 6}, {Key: capture.OutInterface, Name: "lo"}, {Key: capture.Destination, Prefix: netip.MustParsePrefix("127.0.0.1/32"), Not: true},
			}, Action: reject, Reason: "a"},
			`! -d 127.0.0.1/32 -o lo -p tcp -m comment --comment a -j REJECT --reject-with tcp-reset`,
		},
		"an interface may be a prefix": {
			capture.Rule{Match: []capture.Match{{Key: capture.InInterface, Name: "eth+"}}, Action: leave, Reason: "a"},
			"-i eth+ -m comment --comment a -j RETURN",
		},
		"a key is added where there is none": {
			capture.Rule{Action: capture.Action{Verb: capture.Add, Name: "gone-1"}, Reason: "a"},
			"-m recent ! --rcheck --seconds 60 --name gone-1 --mask 0.0.0.0 --rdest -m recent --set --name gone-1 --mask 0.0.0.0 --rdest -m comment --comment a",
		},
		"a key that is there begins anew": {
			capture.Rule{Match: []capture.Match{in}, Action: capture.Action{Verb: capture.Update, Name: "gone-1"}, Reason: "a"},
			"-m recent --rcheck --seconds 60 --name gone-1 --mask 0.0.0.0 --rdest -m recent --set --name gone-1 --mask 0.0.0.0 --rdest -m comment --comment a",
		},
		"a key is forgotten when a socket is there": {
			capture.Rule{Match: []capture.Match{{Key: capture.Socket}, notIn}, Action: capture.Action{Verb: capture.Delete, Name: "gone-1"}, Reason: "a"},
			"-m socket --nowildcard -m recent ! --rcheck --seconds 60 --name gone-1 --mask 0.0.0.0 --rdest -m recent --remove --name gone-1 --mask 0.0.0.0 --rdest -m comment --comment a",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := line(t, tt.rule)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("rendered\n%s, want\n%s", got, tt.want)
			}
			r, err := parseRule(got, capture.IPv4, newSetReader(nil))
			if err != nil {
				t.Fatal(err)
			}
			tt.rule.Family = 0 // the table determines the family
			if r.String() != tt.rule.String() || r.Reason != tt.rule.Reason {
				t.Errorf("read back %s # %s, want %s # %s", r, r.Reason, tt.rule, tt.rule.Reason)
			}
		})
	}
}

func TestWhatIptablesCannotExpress(t *testing.T) {
	tcp := capture.Match{Key: capture.Protocol, Num: 6}
	leave := capture.Action{Verb: capture.Return}
	tests := map[string]capture.Rule{
		"a port without a protocol":             {Match: []capture.Match{{Key: capture.DestPort, Num: 1}}, Action: leave},
		"a redirect without a protocol":         {Action: capture.Action{Verb: capture.Redirect, Num: 1}},
		"a reset for UDP":                       {Match: []capture.Match{{Key: capture.Protocol, Num: 17}}, Action: capture.Action{Verb: capture.Reject}},
		"no socket":                             {Match: []capture.Match{{Key: capture.Socket, Not: true}}, Action: leave},
		"two ports at once":                     {Match: []capture.Match{tcp, {Key: capture.DestPort, Num: 1}, {Key: capture.DestPort, Num: 2}}, Action: leave},
		"an interface with a wildcard within":   {Match: []capture.Match{{Key: capture.InInterface, Name: "e+h"}}, Action: leave},
		"an address of the other family":        {Match: []capture.Match{{Key: capture.Source, Prefix: netip.MustParsePrefix("fd00::/8")}}, Action: leave},
		"a range of all addresses":              {Match: []capture.Match{{Key: capture.Source, Prefix: netip.MustParsePrefix("0.0.0.0/0")}}, Action: leave},
		"a comment that is too long":            {Action: leave, Reason: strings.Repeat("x", 256)},
		"a comment of two lines":                {Action: leave, Reason: "a\nCOMMIT"},
		"a set that is not there":               {Action: capture.Action{Verb: capture.Add, Name: "other"}},
		"a set with a timeout that no rule has": {Action: capture.Action{Verb: capture.Delete, Name: "gone-1"}},
		"a name with other letters":             {Action: capture.Action{Verb: capture.Goto, Name: "Park_1"}},
		"a name that is too long":               {Action: capture.Action{Verb: capture.Goto, Name: "mangle-prerouting-and"}},
		"a verb of tomorrow":                    {Action: capture.Action{Verb: "mirror"}},
	}
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := line(t, rule)
			if err == nil {
				t.Fatalf("rendered as %q", got)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", rule.String())) && !strings.Contains(err.Error(), "gone-1") {
				t.Errorf("error does not name the rule: %v", err)
			}
		})
	}
}

func TestWhatIsNotOursOrOnlyHalfThere(t *testing.T) {
	in := capture.Defaults()
	in.Families = capture.DualStack
	rs, _ := capture.Build(in, capture.IPTables)
	four, six := render(t, rs)
	drop := func(text, part string) string {
		lines := slices.Collect(strings.Lines(text))
		i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, part) })
		if i < 0 {
			t.Fatalf("no line with %q", part)
		}
		return strings.Join(slices.Delete(lines, i, i+1), "")
	}
	tests := map[string]struct {
		four, six string
		want      string // the expected error; if empty, the record must not match
	}{
		"no record":                      {drop(four, "-A OUTRIDER_RECORD"), drop(six, "-A OUTRIDER_RECORD"), "no record"},
		"a rule for both in one":         {drop(four, "status port 15020"), six, ""},
		"a rule for one family missing":  {drop(four, "127.0.0.1/32"), six, ""},
		"a chain in one":                 {four, "*nat\n:OUTRIDER_OUTPUT - [0:0]\nCOMMIT\n", "half there"},
		"a jump in one":                  {drop(four, "-A INPUT"), six, "half there"},
		"a jump twice":                   {four + "*nat\n-A OUTPUT -m comment --comment outrider -j OUTRIDER_OUTPUT\n", six, "twice"},
		"another program's jump":         {four + "*nat\n-A OUTPUT -p tcp -j OUTRIDER_OUTPUT\n", six, "not ours"},
		"another program's rule in ours": {four + "*nat\n:OUTRIDER_Y - [0:0]\n-A OUTRIDER_Y -j LOG --log-prefix x\n", six, "LOG"},
		"another program's chain":        {four + "*nat\n:OUTRIDER_lower - [0:0]\n", six, "OUTRIDER_lower"},
		"one family after the other":     {four, six + "*nat\n-A OUTRIDER_OUTPUT -j RETURN\n", ""},
		"rules of an older version": {
			strings.ReplaceAll(four, "stays in the pod", "stays in the pod [#11 order=1,0]"),
			strings.ReplaceAll(six, "stays in the pod", "stays in the pod [#12]"), "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			st, err := parse(tt.four, tt.six)
			switch record, intact := st.Recorded(); {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("parse: %v, want an error with %q", err, tt.want)
				}
			case err != nil:
				t.Errorf("parse: %v", err)
			case intact:
				t.Errorf("record %q, want one that is not true", record)
			}
		})
	}
}

func TestCountersOfBothFamiliesAreAdded(t *testing.T) {
	in := capture.Defaults()
	in.Families = capture.DualStack
	rs, _ := capture.Build(in, capture.IPTables)
	four, six := render(t, rs)
	four = strings.ReplaceAll(four, "-A ", "[2:99] -A ")
	six = strings.ReplaceAll(six, "-A ", "[3:99] -A ")
	st, err := parse(four, six)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range st.Chains {
		for i, r := range c.Rules {
			want := map[capture.Families]uint64{0: 5, capture.IPv4: 2, capture.IPv6: 3}[r.Family]
			if got := st.Packets[c.Name][i]; got != want {
				t.Errorf("chain %s, rule %q: %d packets, want %d", c.Name, r, got, want)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, in := range []capture.Intent{
		{Mode: capture.NoneMode, Families: capture.DualStack, Park: capture.ParkOn, ParkPorts: capture.Ports{List: []uint16{80}}, ParkLimit: time.Minute},
		{Mode: capture.TProxyMode, Families: capture.IPv4, Park: capture.ParkOff, Loopback: netip.MustParsePrefix("127.0.0.1/32")},
	} {
		rs, _ := capture.Build(in, capture.IPTables)
		four, six := render(f, rs)
		f.Add(four, six)
	}
	f.Add("*nat\n:OUTRIDER_X - [0:0]\n-A OUTRIDER_X -p tcp -m set --match-set outrider-a-ports dst -m set ! --match-set outrider-a-four src -m comment --comment a -j RETURN\n",
		"*nat\n:OUTRIDER_X - [0:0]\n-A OUTRIDER_X -m set --match-set outrider-a-six dst -m comment --comment a -j RETURN\n")
	f.Add("*nat\n:OUTRIDER_X - [0:0]\n[1:2] -A OUTRIDER_X -m comment --comment \"a [#99999999 order=5]\" -j RETURN\n", "")
	f.Fuzz(func(t *testing.T, v4, v6 string) {
		st, err := parse(v4, v6)
		if err != nil {
			return
		}
		// Parsed rules can be rendered again, except for sets that no rule looks up.
		four, err4 := express(st.Ruleset, capture.IPv4, 'a')
		six, err6 := express(st.Ruleset, capture.IPv6, 'a')
		if err4 != nil || err6 != nil {
			return
		}
		again, err := parse(change(owned{}, four), change(owned{}, six))
		if err != nil {
			t.Fatalf("parsing what is rendered of it: %v", err)
		}
		if diff := capture.Diff(st.Ruleset, again.Ruleset); diff != nil {
			t.Fatalf("read, written and read (-first +second):\n%s", strings.Join(diff, "\n"))
		}
	})
}

// legacyTable returns a table with one of our chains, which contains one rule that counted 7
// packets.
func legacyTable(address int) []byte {
	counters := (address + entryCounters + 7) &^ 7
	entry := func(packets byte, target string) []byte {
		e := make([]byte, counters+16, 256)
		e[address+entryTarget], e[address+entryNext] = byte(len(e)), byte(len(e)+2+len(target))
		e[counters] = packets
		return append(e, "\x00\x00"+target...)
	}
	return slices.Concat(entry(1, ""), entry(2, string(chainMark)+"X"), entry(7, ""), entry(3, ""), entry(0, "ERROR"+strings.Repeat("\x00", 25)+"ERROR"))
}

func FuzzDecodeEntries(f *testing.F) {
	f.Add(legacyTable(84), false)
	f.Add(legacyTable(136), true)
	f.Fuzz(func(t *testing.T, entries []byte, six bool) {
		family := capture.IPv4
		if six {
			family = capture.IPv6
		}
		packets := map[string][]uint64{}
		if decodeEntries(entries, family, packets) != nil {
			return
		}
		for chain, list := range packets { // any order: each chain is checked separately
			if !isOurs(chain) || len(list) > len(entries)/112 {
				t.Errorf("chain %q with %d rules in %d bytes", chain, len(list), len(entries))
			}
		}
	})
}
