// Package iptables writes capture's rule sets into the kernel with iptables-restore, reads them
// back with iptables-save and removes them.
//
// All our rules are in chains named OUTRIDER_... Each is reached by one constant jump from a chain
// of the kernel, or by a goto from another chain of ours. So our rules can be recognised, replaced
// and removed whatever flags or version wrote them, and the rules of other programs do not change.
//
// iptables commits each table, and IPv4 and IPv6, separately. While rules change, new connections
// wait behind a guard in each family that is not finished. A change that fails halfway is undone.
//
// There are two variants of iptables, with separate rules: "legacy" with its own tables in the
// kernel, and "nft" on top of nf_tables. The package looks for its rules in both, and leaves them
// in one.
package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// Script returns rs as input for iptables-restore and ip6tables-restore, for people to read: one
// part for each family.
func Script(rs capture.Ruleset) (string, error) {
	var b strings.Builder
	b.WriteString(ipset.Script(rs))
	for _, f := range []struct {
		family  capture.Families
		program string
	}{{capture.IPv4, "iptables-restore"}, {capture.IPv6, "ip6tables-restore"}} {
		if !rs.Families.Has(f.family) {
			continue
		}
		o, err := express(rs, f.family, 'a')
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "# for %s --noflush\n%s", f.program, change(owned{}, o))
	}
	return b.String(), nil
}

// express returns the rules of rs for one family in the form of iptables-save, with sets of the
// given generation. A rule that iptables cannot express is an error that names the rule.
func express(rs capture.Ruleset, family capture.Families, generation byte) (owned, error) {
	if rs.Backend != capture.IPTables {
		return nil, fmt.Errorf("the rules are built for %q, not for %s", rs.Backend, capture.IPTables)
	}
	out := owned{}
	if !rs.Families.Has(family) {
		return out, nil
	}
	w := writer{rs: rs, family: family, generation: generation, timed: map[string]bool{}}
	for _, c := range rs.Chains {
		if err := w.chain(out, c); err != nil {
			return nil, err
		}
	}
	for _, s := range rs.Sets {
		if !s.IPSet() && !w.timed[s.Name] {
			return nil, fmt.Errorf("set %s: no rule looks it up, so iptables has no place for its timeout", s.Name)
		}
	}
	return out, nil
}

type writer struct {
	rs         capture.Ruleset
	family     capture.Families
	generation byte            // of ipset's sets
	timed      map[string]bool // sets whose timeout is already in a rule
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
	for _, r := range c.For(w.family) {
		spec, err := w.rule(r)
		if err != nil {
			return fmt.Errorf("chain %s, rule %q: %w", c.Name, r, err)
		}
		t.rules[name] = append(t.rules[name], entry{spec: spec})
	}
	return nil
}

// maxComment is XT_MAX_COMMENT_LEN without the final NUL.
const maxComment = 255

// rule returns the line of a rule, in the form in which iptables-save prints it.
func (w *writer) rule(r capture.Rule) (string, error) {
	if len(r.Reason) > maxComment || strings.ContainsFunc(r.Reason, func(r rune) bool { return r < ' ' }) {
		return "", fmt.Errorf("reason %q: a comment takes one line of at most %d bytes", r.Reason, maxComment)
	}
	conditions, err := w.conditions(r)
	if err != nil {
		return "", err
	}
	action, err := w.action(r.Action)
	if err != nil {
		return "", err
	}
	comment := "-m comment --comment " + quote(r.Reason)
	if strings.HasPrefix(action, "-m") {
		return strings.Join(append(conditions, action, comment), " "), nil
	}
	return strings.Join(append(conditions, comment, action), " "), nil
}

// conditions returns the conditions of a rule, each with its module.
func (w *writer) conditions(r capture.Rule) ([]string, error) {
	list, protocol, err := w.complete(r)
	if err != nil {
		return nil, err
	}
	var out []string
	module := ""
	for _, t := range terms {
		for i, m := range list {
			if !t.isFor(m) {
				continue
			}
			if t.once() && slices.ContainsFunc(list[:i], func(n capture.Match) bool { return n.Key == m.Key }) {
				return nil, fmt.Errorf("%s is there twice", m.Key)
			}
			text, err := w.condition(t, m)
			if err != nil {
				return nil, err
			}
			// A module that may occur several times is named for each condition, since one module
			// cannot contain the same condition twice if it is negated.
			if t.module != "" && !(t.module == transport && module == transport) {
				out = append(out, "-m "+strings.ReplaceAll(t.module, transport, protocol))
			}
			module = t.module
			out = append(out, text)
		}
	}
	return out, nil
}

// complete returns the conditions of a rule, with TCP if SYN implies it, and the name of the
// protocol. It refuses rules that iptables cannot express.
func (w *writer) complete(r capture.Rule) (list []capture.Match, protocol string, err error) {
	list = r.Match
	if hasKey(list, capture.SYN) && !hasKey(list, capture.Protocol) {
		list = append([]capture.Match{{Key: capture.Protocol, Num: capture.TCP}}, list...)
	}
	for _, m := range list {
		if err := checkCondition(r.Action, m); err != nil {
			return nil, "", err
		}
		if m.Key == capture.Protocol && !m.Not {
			if protocol, err = protocolName(m.Num); err != nil {
				return nil, "", err
			}
		}
	}
	return list, protocol, checkProtocol(protocol, list, r.Action.Verb)
}

// checkProtocol refuses a rule whose protocol does not fit its conditions and action.
func checkProtocol(protocol string, list []capture.Match, verb capture.Verb) error {
	byPort := hasKey(list, capture.SourcePort) || hasKey(list, capture.DestPort) || verb == capture.Redirect || verb == capture.TProxy
	switch {
	case byPort && protocol == "":
		return errors.New("ports need a protocol")
	case (hasKey(list, capture.SYN) || verb == capture.Reject) && protocol != "tcp":
		return errors.New("only for TCP")
	}
	return nil
}

func hasKey(list []capture.Match, key capture.Key) bool {
	return slices.ContainsFunc(list, func(m capture.Match) bool { return m.Key == key })
}

// checkCondition refuses a condition that iptables cannot express.
func checkCondition(a capture.Action, m capture.Match) error {
	switch {
	case !slices.ContainsFunc(terms, func(t term) bool { return t.key == m.Key }):
		return fmt.Errorf("iptables has no condition %q", m.Key)
	case m.Not && (m.Key == capture.Socket || m.Key == capture.Original):
		return fmt.Errorf("%s cannot be negated", m.Key)
	case m.Not && m.Key == capture.InSet && a.Verb == capture.Update && a.Name == m.Name:
		return errors.New("updating a key that is not in a set is the same as adding it; use Add")
	}
	return nil
}

// condition returns the text of one condition, without its module.
func (w *writer) condition(t term, m capture.Match) (string, error) {
	v := values{family: w.family, num: m.Num, last: m.Last, prefix: m.Prefix, name: m.Name}
	if m.Key == capture.InSet && t.module == "set" {
		s := w.rs.Set(m.Name)
		if s == nil || s.Key != capture.SetKey(m.Num) {
			return "", fmt.Errorf("there is no set %q by %s", m.Name, capture.SetKey(m.Num))
		}
		v.list = ipset.Name(w.generation, *s, w.family)
	} else if m.Key == capture.InSet {
		s, err := w.set(m.Name)
		if err != nil {
			return "", err
		}
		v.timeout = s.Timeout
		w.timed[m.Name] = true
	}
	text, err := fill(t.words, v)
	if m.Not {
		text = "! " + text
	}
	return text, err
}

func (w *writer) set(name string) (*capture.Set, error) {
	s := w.rs.Set(name)
	if s == nil {
		return nil, fmt.Errorf("there is no set %q", name)
	}
	if s.Key != capture.ByFamily {
		return nil, fmt.Errorf("set %s: iptables cannot remember ports", name)
	}
	return s, nil
}

// action returns the text of an action: a target, or, for a set of module recent, a condition that
// is always met.
func (w *writer) action(a capture.Action) (string, error) {
	verb, before, list := a.Verb, "", ""
	s := w.rs.Set(a.Name)
	isSet := verb == capture.Add || verb == capture.Update || verb == capture.Delete
	switch {
	case isSet && s != nil && s.Key == capture.ByFamilyPort:
		list = ipset.Name(w.generation, *s, w.family)
	case verb == capture.Add:
		// Without this condition, --set would restart the timeout of a key that is in the set.
		absent, err := w.conditions(capture.Rule{Match: []capture.Match{{Key: capture.InSet, Not: true, Name: a.Name}}})
		if err != nil {
			return "", err
		}
		verb, before = capture.Update, strings.Join(absent, " ")+" "
	case isSet:
		if _, err := w.set(a.Name); err != nil {
			return "", err
		}
	}
	for _, e := range effects {
		if e.verb == verb && strings.Contains(e.words, "{list}") == (list != "") {
			text, err := fill(e.words, values{family: w.family, num: a.Num, mark: a.Mark, name: a.Name, list: list})
			return before + text, err
		}
	}
	return "", fmt.Errorf("iptables has no action %q", a.Verb)
}
