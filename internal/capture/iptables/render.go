package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/capture"
)

// Render returns the input of iptables-restore --noflush that writes rs for one
// family where nothing of ours is. A rule that iptables has no words for is an
// error that names it.
func Render(rs capture.Ruleset, family capture.Families) (string, error) {
	o, err := express(rs, family)
	if err != nil {
		return "", err
	}
	return change(owned{}, o), nil
}

// express says rs for one family in the words of iptables-save.
func express(rs capture.Ruleset, family capture.Families) (owned, error) {
	if rs.Backend != capture.IPTables {
		return nil, fmt.Errorf("the rules are built for %q, not for %s", rs.Backend, capture.IPTables)
	}
	out := owned{}
	if !rs.Families.Has(family) {
		return out, nil
	}
	w := writer{rs: rs, family: family, asked: map[string]bool{}}
	for _, c := range rs.Chains {
		if err := w.chain(out, c); err != nil {
			return nil, err
		}
	}
	for _, s := range rs.Sets {
		if !w.asked[s.Name] {
			return nil, fmt.Errorf("set %s: no rule asks it, so iptables has no place for its time", s.Name)
		}
	}
	return out, nil
}

type writer struct {
	rs     capture.Ruleset
	family capture.Families
	asked  map[string]bool // sets whose time is in a rule
}

func (w *writer) chain(out owned, c capture.Chain) error {
	name, err := kernelName(c.Name)
	if err != nil {
		return err
	}
	if !slices.Contains(tables, c.Table) {
		return fmt.Errorf("chain %s: there is no table %q", c.Name, c.Table)
	}
	t := out.table(c.Table)
	if slices.Contains(t.chains, name) {
		return fmt.Errorf("chain %s is there twice", c.Name)
	}
	t.chains = append(t.chains, name)
	if c.Hook != capture.NoHook {
		builtin, ok := builtins[c.Hook]
		if !ok {
			return fmt.Errorf("chain %s: there is no hook %q", c.Name, c.Hook)
		}
		t.jumps = append(t.jumps, jump{builtin, jumpTo(name)})
	}
	for i, r := range c.Rules {
		if r.Family != 0 && !r.Family.Has(w.family) {
			continue
		}
		spec, err := w.rule(r, i)
		if err != nil {
			return fmt.Errorf("chain %s, rule %q: %w", c.Name, r, err)
		}
		t.rules[name] = append(t.rules[name], entry{spec: spec})
	}
	return nil
}

// rule is one line, in the form in which iptables-save gives it back.
func (w *writer) rule(r capture.Rule, index int) (string, error) {
	complete := implied(r.Match)
	if err := w.check(r, complete); err != nil {
		return "", err
	}
	if !w.needsIndex(r) {
		index = -1
	}
	parts := headers(complete)
	parts = append(parts, transport(complete)...)
	for _, m := range complete {
		words, err := w.module(m)
		if err != nil {
			return "", err
		}
		parts = append(parts, words)
	}
	memory, target, err := w.action(r.Action)
	if err != nil {
		return "", err
	}
	comment := r.Reason + hintFor(r, complete, index).String()
	if len(comment) > maxComment || strings.ContainsFunc(comment, func(r rune) bool { return r < ' ' }) {
		return "", fmt.Errorf("reason %q: a comment takes one line of at most %d bytes", comment, maxComment)
	}
	// Memory is written by the last condition: all others are met by then.
	parts = append(parts, memory, "-m comment --comment "+quote(comment), target)
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, " "), nil
}

// maxComment is XT_MAX_COMMENT_LEN without the closing zero.
const maxComment = 255

// implied adds what the model leaves unsaid: SYN is TCP's.
func implied(match []capture.Match) []capture.Match {
	has := func(key capture.Key) bool {
		return slices.ContainsFunc(match, func(m capture.Match) bool { return m.Key == key })
	}
	if has(capture.SYN) && !has(capture.Protocol) {
		return append([]capture.Match{{Key: capture.Protocol, Num: capture.TCP}}, match...)
	}
	return match
}

// needsIndex reports whether a rule's place, or that it is for one family, would
// be lost otherwise.
func (w *writer) needsIndex(r capture.Rule) bool {
	if r.Family == 0 || r.Family == capture.DualStack {
		return false
	}
	hasPrefix := slices.ContainsFunc(r.Match, func(m capture.Match) bool { return m.Prefix.IsValid() })
	return w.rs.Families == capture.DualStack || !hasPrefix
}

// single are the keys that a rule of iptables can ask once.
var single = []capture.Key{
	capture.Protocol, capture.SYN, capture.InInterface, capture.OutInterface,
	capture.Source, capture.Destination, capture.SourcePort, capture.DestPort,
}

// check refuses what iptables cannot say, or would understand otherwise.
func (w *writer) check(r capture.Rule, complete []capture.Match) error {
	seen := map[capture.Key]bool{}
	protocol := uint32(0)
	for _, m := range complete {
		if seen[m.Key] && slices.Contains(single, m.Key) {
			return fmt.Errorf("%s is asked twice", m.Key)
		}
		seen[m.Key] = true
		if err := w.checkMatch(r, m); err != nil {
			return err
		}
		if m.Key == capture.Protocol && !m.Not {
			protocol = m.Num
		}
	}
	ports := seen[capture.SourcePort] || seen[capture.DestPort] || r.Action.Verb == capture.Redirect || r.Action.Verb == capture.TProxy
	if ports && protocol == 0 {
		return errors.New("ports need a protocol")
	}
	if (seen[capture.SYN] || r.Action.Verb == capture.Reject) && protocol != capture.TCP {
		return errors.New("only for TCP")
	}
	return nil
}

func (w *writer) checkMatch(r capture.Rule, m capture.Match) error {
	switch m.Key {
	case capture.Protocol:
		if m.Num != capture.TCP && m.Num != capture.UDP {
			return fmt.Errorf("protocol %d: only TCP and UDP", m.Num)
		}
	case capture.Source, capture.Destination:
		if !m.Prefix.IsValid() || familyOf(m.Prefix) != r.Family || m.Prefix != m.Prefix.Masked() {
			return fmt.Errorf("%s is not a range of the rule's family, %s", m.Prefix, r.Family)
		}
		if m.Not && m.Prefix.Bits() == 0 {
			return errors.New("no address is outside of all")
		}
	case capture.InInterface, capture.OutInterface:
		if m.Name == "" || len(m.Name) > 15 || strings.ContainsAny(m.Name, "\"\\+ \t\n/") || strings.ContainsAny(m.Name[:1], "-!") {
			return fmt.Errorf("interface %q: iptables would read it otherwise", m.Name)
		}
	case capture.SourcePort, capture.DestPort:
		if m.Num > 0xffff {
			return fmt.Errorf("%d is not a port", m.Num)
		}
	case capture.InSet:
		if m.Not && r.Action.Verb == capture.Update && r.Action.Name == m.Name {
			return errors.New("updating a key that is not there is the same as adding it; say that")
		}
	}
	return nil
}

func familyOf(p netip.Prefix) capture.Families {
	if p.Addr().Is4() {
		return capture.IPv4
	}
	return capture.IPv6
}

// everywhere is the range of all addresses, which iptables leaves unsaid.
func everywhere(family capture.Families) netip.Prefix {
	if family == capture.IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func everyAddress(m capture.Match) bool { return m.Prefix.IsValid() && m.Prefix.Bits() == 0 }

func negation(m capture.Match) string {
	if m.Not {
		return "! "
	}
	return ""
}

var protocols = map[uint32]string{capture.TCP: "tcp", capture.UDP: "udp"}

// find returns the conditions on some keys, in the order of the keys.
func find(match []capture.Match, keys ...capture.Key) []capture.Match {
	var out []capture.Match
	for _, key := range keys {
		for _, m := range match {
			if m.Key == key {
				out = append(out, m)
			}
		}
	}
	return out
}

// headers are the conditions that iptables has before all modules, in its order.
func headers(match []capture.Match) []string {
	var out []string
	for _, m := range find(match, capture.Source, capture.Destination, capture.InInterface, capture.OutInterface, capture.Protocol) {
		words := ""
		switch m.Key {
		case capture.Source:
			words = "-s " + m.Prefix.String()
		case capture.Destination:
			words = "-d " + m.Prefix.String()
		case capture.InInterface:
			words = "-i " + m.Name
		case capture.OutInterface:
			words = "-o " + m.Name
		case capture.Protocol:
			words = "-p " + protocols[m.Num]
		}
		if !everyAddress(m) {
			out = append(out, negation(m)+words)
		}
	}
	return out
}

// synFlags are the flags that tell the begin of a connection, and how they are then.
const synFlags = "FIN,SYN,RST,ACK SYN"

// transport are the conditions of the modules tcp and udp.
func transport(match []capture.Match) []string {
	asked := find(match, capture.SourcePort, capture.DestPort, capture.SYN)
	if len(asked) == 0 {
		return nil
	}
	out := []string{"-m " + protocols[find(match, capture.Protocol)[0].Num]}
	for _, m := range asked {
		switch m.Key {
		case capture.SourcePort:
			out = append(out, fmt.Sprintf("%s--sport %d", negation(m), m.Num))
		case capture.DestPort:
			out = append(out, fmt.Sprintf("%s--dport %d", negation(m), m.Num))
		case capture.SYN:
			out = append(out, negation(m)+"--tcp-flags "+synFlags)
		}
	}
	return out
}

// module is any other condition, or nothing. Each has a module of its own: one
// that is negated twice could not be said with one.
func (w *writer) module(m capture.Match) (string, error) {
	switch m.Key {
	case capture.Mark:
		return fmt.Sprintf("-m mark %s--mark %#x", negation(m), m.Num), nil
	case capture.ConnMark:
		return fmt.Sprintf("-m connmark %s--mark %#x", negation(m), m.Num), nil
	case capture.Invalid:
		return "-m conntrack " + negation(m) + "--ctstate INVALID", nil
	case capture.UID:
		return fmt.Sprintf("-m owner %s--uid-owner %d", negation(m), m.Num), nil
	case capture.GID:
		return fmt.Sprintf("-m owner %s--gid-owner %d", negation(m), m.Num), nil
	case capture.InSet:
		return w.rcheck(m.Name, m.Not)
	case capture.Original, capture.Socket:
		if m.Not {
			return "", fmt.Errorf("%s cannot be negated", m.Key)
		}
		if m.Key == capture.Socket {
			return "-m socket --nowildcard", nil
		}
		return "-m conntrack --ctdir ORIGINAL", nil
	}
	if slices.Contains(single, m.Key) {
		return "", nil
	}
	return "", fmt.Errorf("iptables has no condition %q", m.Key)
}

// recent is the module that remembers addresses. Its mask makes them all the same,
// so that a list holds one key for each family.
func (w *writer) recent(verb, set string) string {
	return fmt.Sprintf("-m recent %s --name %s --mask %s --rdest", verb, set, everywhere(w.family).Addr())
}

// rcheck asks whether a key has a time stamp that is young enough.
func (w *writer) rcheck(name string, not bool) (string, error) {
	s, err := w.set(name)
	if err != nil {
		return "", err
	}
	w.asked[name] = true
	verb := fmt.Sprintf("--rcheck --seconds %d", s.Timeout/time.Second)
	return w.recent(negation(capture.Match{Not: not})+verb, name), nil
}

func (w *writer) set(name string) (*capture.Set, error) {
	s := w.rs.Set(name)
	switch {
	case s == nil || !modelName.MatchString(name):
		return nil, fmt.Errorf("there is no set %q", name)
	case s.Key != capture.ByFamily:
		return nil, fmt.Errorf("set %s: iptables cannot remember ports", name)
	case s.Timeout < time.Second || s.Timeout%time.Second != 0 || s.Timeout > maxTimeout:
		return nil, fmt.Errorf("set %s: its time, %s, is not a number of seconds that fits", name, s.Timeout)
	}
	return s, nil
}

// maxTimeout is a time that the kernel counts in 32 bits whatever its clock.
const maxTimeout = 24 * time.Hour

// action is what a rule does: either it remembers, by a module that is always
// true, or it has a target.
func (w *writer) action(a capture.Action) (memory, target string, err error) {
	switch a.Verb {
	case capture.Add:
		// Not a bare --set, which would begin the time anew for a key that is there.
		absent, err := w.rcheck(a.Name, true)
		return absent + " " + w.recent("--set", a.Name), "", err
	case capture.Update, capture.Delete:
		verb := map[capture.Verb]string{capture.Update: "--set", capture.Delete: "--remove"}[a.Verb]
		_, err := w.set(a.Name)
		return w.recent(verb, a.Name), "", err
	case capture.Goto:
		name, err := kernelName(a.Name)
		return "", "-g " + name, err
	case capture.Return:
		return "", "-j RETURN", nil
	case capture.Drop:
		return "", "-j DROP", nil
	case capture.Reject:
		return "", "-j REJECT --reject-with tcp-reset", nil
	case capture.Redirect:
		return "", fmt.Sprintf("-j REDIRECT --to-ports %d", a.Num), nil
	case capture.TProxy:
		return "", fmt.Sprintf("-j TPROXY --on-port %d --on-ip %s --tproxy-mark %#x/0xffffffff", a.Num, everywhere(w.family).Addr(), a.Mark), nil
	case capture.Zone:
		return "", fmt.Sprintf("-j CT --zone %d", a.Num), nil
	case capture.SetMark:
		return "", fmt.Sprintf("-j MARK --set-xmark %#x/0xffffffff", a.Mark), nil
	case capture.SetConnMark:
		return "", fmt.Sprintf("-j CONNMARK --set-xmark %#x/0xffffffff", a.Mark), nil
	}
	return "", "", fmt.Errorf("iptables has no action %q", a.Verb)
}
