package capture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// String returns the condition in the syntax of nft.
//
// complexity: one case for each key.
func (m Match) String() string {
	op := ""
	if m.Not {
		op = "!= "
	}
	switch m.Key {
	case Protocol:
		return "meta l4proto " + op + ProtocolName(m.Num)
	case SYN:
		if m.Not {
			return "tcp flags & (fin|syn|rst|ack) != syn"
		}
		return "tcp flags & (fin|syn|rst|ack) == syn"
	case InInterface:
		return fmt.Sprintf("iifname %s%q", op, wildcard(m.Name))
	case OutInterface:
		return fmt.Sprintf("oifname %s%q", op, wildcard(m.Name))
	case Source, Destination:
		network := "ip "
		if m.Prefix.Addr().Is6() {
			network = "ip6 "
		}
		return network + string(m.Key) + " " + op + m.Prefix.String()
	case SourcePort, DestPort:
		return fmt.Sprintf("th %s %s%s", m.Key, op, m.Range())
	case UID:
		return fmt.Sprintf("meta skuid %s%d", op, m.Num)
	case GID:
		return fmt.Sprintf("meta skgid %s%d", op, m.Num)
	case Mark:
		return fmt.Sprintf("meta mark %s%#x", op, m.Num)
	case ConnMark:
		return fmt.Sprintf("ct mark %s%#x", op, m.Num)
	case Original:
		return "ct direction original"
	case Invalid:
		return "ct state " + op + "invalid"
	case Socket:
		// This condition is met whenever there is a socket. "socket wildcard" would not work: it
		// ignores sockets in TIME_WAIT, so a client that reuses its port would have to wait.
		return "socket transparent <= 1"
	case InSet:
		return SetKey(m.Num).String() + " " + op + "@" + m.Name
	}
	return fmt.Sprintf("unknown match %q", m.Key)
}

// wildcard converts iptables' mark of a name prefix (+) to nft's.
func wildcard(name string) string {
	if prefix, ok := strings.CutSuffix(name, "+"); ok {
		return prefix + "*"
	}
	return name
}

// ProtocolName returns the name of an IP protocol, or its number if the name is not known.
func ProtocolName(n uint32) string {
	switch n {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprint(n)
}

// String returns the action in nft's words.
func (a Action) String() string {
	switch a.Verb {
	case Goto:
		return "goto " + a.Name
	case Redirect:
		return fmt.Sprintf("redirect to :%d", a.Num)
	case TProxy:
		return fmt.Sprintf("tproxy to :%d meta mark set %#x accept", a.Num, a.Mark)
	case Zone:
		return fmt.Sprintf("ct zone set %d return", a.Num)
	case SetMark:
		return fmt.Sprintf("meta mark set %#x", a.Mark)
	case SetConnMark:
		return fmt.Sprintf("ct mark set %#x", a.Mark)
	case Reject:
		return "reject with tcp reset"
	case Add, Update, Delete:
		return fmt.Sprintf("%s @%s { %s }", a.Verb, a.Name, SetKey(a.Num))
	}
	return strings.TrimSpace(string(a.Verb) + " " + a.Name)
}

// String returns the rule without its reason.
func (r Rule) String() string {
	var parts []string
	switch r.Family {
	case IPv4:
		parts = append(parts, "meta nfproto ipv4")
	case IPv6:
		parts = append(parts, "meta nfproto ipv6")
	}
	for _, m := range r.Match {
		parts = append(parts, m.String())
	}
	return strings.Join(append(parts, r.Action.String()), " ")
}

func (c Chain) heading() string {
	if c.Hook == NoHook {
		return fmt.Sprintf("chain %s (%s)", c.Name, c.Table)
	}
	return fmt.Sprintf("chain %s (%s, at %s)", c.Name, c.Table, c.Hook)
}

// String returns the canonical text of rs, without its record: equal rules have equal text. Chains
// are sorted by name, because a kernel may return them in another order.
func (rs Ruleset) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "backend %s, families %s\n", rs.Backend, rs.Families)
	if r := rs.Routing; r != (Routing{}) {
		fmt.Fprintf(&b, "routing mark %#x table %d ::6 %t\n", r.Mark, r.Table, r.SixSource)
	}
	var sets, chains []string // each starts with its name
	for _, s := range rs.Sets {
		if !s.Constant() {
			text := fmt.Sprintf("set %s by %s for %s", s.Name, s.Key, s.Timeout)
			if s.Size > 0 {
				text += fmt.Sprintf(", at most %d", s.Size)
			}
			sets = append(sets, text+"\n")
			continue
		}
		sets = append(sets, fmt.Sprintf("set %s by %s\n  %s\n", s.Name, s.Key, strings.Join(s.elements(), "\n  ")))
	}
	for _, c := range rs.Chains {
		if c.Name == recordChain {
			continue
		}
		var text strings.Builder
		text.WriteString(c.heading() + "\n")
		for _, r := range c.Rules {
			text.WriteString("  " + r.String() + " # " + r.Reason + "\n")
		}
		chains = append(chains, text.String())
	}
	slices.Sort(sets)
	slices.Sort(chains)
	b.WriteString(strings.Join(sets, "") + strings.Join(chains, ""))
	return b.String()
}

// Explain returns rs for people: all chains in the order in which packets meet them, and every rule
// with its reason.
func (rs Ruleset) Explain() string {
	var b strings.Builder
	for _, c := range rs.Chains {
		if c.Name == recordChain {
			continue
		}
		fmt.Fprintln(&b, c.heading())
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "  %s\n      %s\n", r, r.Reason)
		}
		fmt.Fprintln(&b)
	}
	for _, s := range rs.Sets {
		if s.Constant() {
			fmt.Fprintf(&b, "set %s: %s in %s\n", s.Name, s.Key, s.Elements())
			continue
		}
		fmt.Fprintf(&b, "set %s: keys live %s\n", s.Name, s.Timeout)
	}
	if r := rs.Routing; r.Mark != 0 {
		fmt.Fprintf(&b, "routing: packets with mark %#x are local (table %d), so that the proxy gets packets for other addresses\n", r.Mark, r.Table)
	}
	if rs.Routing.SixSource {
		fmt.Fprintln(&b, "address: ::6/128 on lo, from which the proxy passes inbound connections on")
	}
	return b.String()
}

type ruleJSON struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

type chainJSON struct {
	Name  string     `json:"name"`
	Table Table      `json:"table"`
	Hook  Hook       `json:"hook,omitempty"`
	Rules []ruleJSON `json:"rules"`
}

type setJSON struct {
	Name     string   `json:"name"`
	Key      string   `json:"key"`
	Seconds  int      `json:"seconds,omitempty"`
	Elements []string `json:"elements,omitempty"`
}

// MarshalJSON writes the families, the sets, the chains with every rule as text,
// the routing and the record.
func (rs Ruleset) MarshalJSON() ([]byte, error) {
	record, _ := rs.Recorded()
	out := struct {
		Backend  string      `json:"backend"`
		Families string      `json:"families"`
		Record   string      `json:"record"`
		Sets     []setJSON   `json:"sets"`
		Chains   []chainJSON `json:"chains"`
		Routing  *Routing    `json:"routing,omitempty"`
	}{Backend: rs.Backend, Families: rs.Families.String(), Record: record, Sets: []setJSON{}, Chains: []chainJSON{}}
	for _, s := range rs.Sets {
		out.Sets = append(out.Sets, setJSON{s.Name, s.Key.String(), int(s.Timeout.Seconds()), s.elements()})
	}
	for _, c := range rs.Chains {
		cj := chainJSON{Name: c.Name, Table: c.Table, Hook: c.Hook, Rules: []ruleJSON{}}
		for _, r := range c.Rules {
			cj.Rules = append(cj.Rules, ruleJSON{r.String(), r.Reason})
		}
		out.Chains = append(out.Chains, cj)
	}
	if rs.Routing != (Routing{}) {
		out.Routing = &rs.Routing
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // rules are full of &
	if err := e.Encode(out); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// maxDiff bounds the lines of a Diff: more lines would hide the important ones, and fill a
// termination message of 4 KiB.
const maxDiff = 30

// Diff compares the lines of two rule sets. It returns lines that are only in want after "-", and
// lines that are only in got after "+". An empty result means that they are equal.
func Diff(want, got Ruleset) []string {
	if want.equal(got) {
		return nil
	}
	wanted, have := want.String(), got.String()
	if wanted == have {
		return nil
	}
	w, g := lines(wanted), lines(have)
	out := append(missing("- ", w, g), missing("+ ", g, w)...)
	switch {
	case len(out) == 0:
		out = append(out, "the same rules in another order or number")
	case len(out) > maxDiff:
		out = append(out[:maxDiff], fmt.Sprintf("... and %d more", len(out)-maxDiff))
	}
	return out
}

// equal reports whether two rule sets have the same text. It does not build the texts, which takes
// longer for long lists than the rest of a run.
func (rs Ruleset) equal(other Ruleset) bool {
	if rs.Backend != other.Backend || rs.Families != other.Families || rs.Routing != other.Routing ||
		len(rs.Sets) != len(other.Sets) || len(rs.Chains) != len(other.Chains) {
		return false
	}
	for _, s := range rs.Sets {
		if t := other.Set(s.Name); t == nil || !s.equal(*t) {
			return false
		}
	}
	for _, c := range rs.Chains {
		if d := other.Chain(c.Name); d == nil || !c.equal(*d) {
			return false
		}
	}
	return true
}

func (s Set) equal(t Set) bool {
	return s.Key == t.Key && s.Timeout == t.Timeout && s.Size == t.Size &&
		slices.Equal(s.Numbers, t.Numbers) && slices.Equal(s.Addresses, t.Addresses)
}

// equal ignores the record, which follows from the rules.
func (c Chain) equal(d Chain) bool {
	return c.Table == d.Table && c.Hook == d.Hook && (c.Name == recordChain || slices.EqualFunc(c.Rules, d.Rules, Rule.equal))
}

// missing returns the lines of the first list that are not in the second, each with the sign before
// it.
func missing(sign string, list, other []string) (out []string) {
	there := make(map[string]bool, len(other))
	for _, line := range other {
		there[line] = true
	}
	for _, line := range list {
		if !there[line] {
			out = append(out, sign+line)
		}
	}
	return out
}

// lines divides the text of a rule set into lines, and puts the chain's name before each rule and
// the set's name before each element.
func lines(text string) []string {
	var out []string
	within := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rule, ok := strings.CutPrefix(line, "  "); ok {
			out = append(out, within+": "+rule)
			continue
		}
		within = line
		if name, ok := strings.CutPrefix(line, "chain "); ok {
			within, _, _ = strings.Cut(name, " ")
		}
		out = append(out, line)
	}
	return out
}
