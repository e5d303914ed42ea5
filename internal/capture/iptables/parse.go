package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/capture"
)

// A rule as one family has it.
type rule struct {
	capture.Rule
	index   int // its place, if it has one of its own; else -1
	packets uint64
}

// parser reads the words of one rule.
type parser struct {
	words    []string
	family   capture.Families
	module   string
	match    []capture.Match
	memories []memory
	comment  string
	action   capture.Action
	timeouts map[string]time.Duration // of sets, filled in
}

// A memory is one use of the module recent.
type memory struct {
	not         bool
	verb, name  string
	seconds     uint32
	mask, rdest bool
}

// parseRule is the inverse of writer.rule. Times of sets go to timeouts.
func parseRule(e entry, family capture.Families, both bool, timeouts map[string]time.Duration) (rule, error) {
	words, err := split(e.spec)
	if err != nil {
		return rule{}, err
	}
	p := parser{words: words, family: family, timeouts: timeouts}
	for len(p.words) > 0 {
		if err := p.option(); err != nil {
			return rule{}, err
		}
	}
	if err := p.remember(); err != nil {
		return rule{}, err
	}
	reason, h, err := cutHint(p.comment)
	if err != nil {
		return rule{}, err
	}
	match, err := h.apply(p.match, family)
	if err != nil {
		return rule{}, err
	}
	out := rule{Rule: capture.Rule{Match: match, Action: p.action, Reason: reason}, index: h.index, packets: e.packets}
	hasPrefix := slices.ContainsFunc(match, func(m capture.Match) bool { return m.Prefix.IsValid() })
	if h.index >= 0 || hasPrefix {
		out.Family = family
	}
	if both && hasPrefix && h.index < 0 {
		return rule{}, errors.New("it is for one family, and nothing says where it belongs among the rules of the other")
	}
	return out, nil
}

// next takes a word.
func (p *parser) next() (string, error) {
	if len(p.words) == 0 {
		return "", errors.New("it ends in the middle")
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w, nil
}

// A reader takes the value of an option.
type reader func(p *parser, value string, not bool) error

// options are the conditions by the module they belong to and their name.
var options = map[string]map[string]reader{
	"": {
		"-s": prefixReader(capture.Source),
		"-d": prefixReader(capture.Destination),
		"-i": nameReader(capture.InInterface),
		"-o": nameReader(capture.OutInterface),
		"-p": readProtocol,
	},
	"tcp":      {"--sport": portReader(capture.SourcePort), "--dport": portReader(capture.DestPort), "--tcp-flags": readFlags},
	"udp":      {"--sport": portReader(capture.SourcePort), "--dport": portReader(capture.DestPort)},
	"mark":     {"--mark": numberReader(capture.Mark, 0)},
	"connmark": {"--mark": numberReader(capture.ConnMark, 0)},
	"owner":    {"--uid-owner": numberReader(capture.UID, 10), "--gid-owner": numberReader(capture.GID, 10)},
	"conntrack": {
		"--ctstate": wordReader("INVALID", capture.Match{Key: capture.Invalid}),
		"--ctdir":   wordReader("ORIGINAL", capture.Match{Key: capture.Original}),
	},
	"comment": {"--comment": readComment},
	"recent":  {"--seconds": readSeconds, "--name": readName, "--mask": readMask},
	"socket":  {},
}

// option takes one option with its value, or the target.
func (p *parser) option() error {
	word, _ := p.next()
	not := word == "!"
	if not {
		var err error
		if word, err = p.next(); err != nil {
			return err
		}
	}
	if done, err := p.bare(word, not); done {
		return err
	}
	if word == "-j" || word == "-g" {
		return p.target(word)
	}
	value, err := p.next()
	if err != nil {
		return err
	}
	if word == "-m" {
		p.module = value
		if _, ok := options[value]; !ok || value == "" {
			return fmt.Errorf("we do not use module %q", value)
		}
		if value == "recent" {
			p.memories = append(p.memories, memory{})
		}
		return nil
	}
	module := p.module
	if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") {
		module = ""
	}
	read, ok := options[module][word]
	if !ok {
		return fmt.Errorf("we do not use %q", word)
	}
	return read(p, value, not)
}

// bare takes the options without a value.
func (p *parser) bare(word string, not bool) (done bool, err error) {
	switch p.module + word {
	case "socket--nowildcard":
		p.match = append(p.match, capture.Match{Key: capture.Socket})
	case "recent--rcheck", "recent--set", "recent--remove":
		m := &p.memories[len(p.memories)-1]
		m.verb, m.not = strings.TrimPrefix(word, "--"), not
		return true, nil
	case "recent--rdest":
		p.memories[len(p.memories)-1].rdest = true
	default:
		return false, nil
	}
	if not {
		return true, fmt.Errorf("we do not negate %q", word)
	}
	return true, nil
}

func prefixReader(key capture.Key) reader {
	return func(p *parser, value string, not bool) error {
		prefix, err := netip.ParsePrefix(value)
		if err != nil || familyOf(prefix) != p.family || prefix != prefix.Masked() {
			return fmt.Errorf("%q is not a range of %s", value, p.family)
		}
		p.match = append(p.match, capture.Match{Key: key, Not: not, Prefix: prefix})
		return nil
	}
}

func nameReader(key capture.Key) reader {
	return func(p *parser, value string, not bool) error {
		p.match = append(p.match, capture.Match{Key: key, Not: not, Name: value})
		return nil
	}
}

func readProtocol(p *parser, value string, not bool) error {
	for n, name := range protocols {
		if name == value {
			p.match = append(p.match, capture.Match{Key: capture.Protocol, Not: not, Num: n})
			return nil
		}
	}
	return fmt.Errorf("we do not ask for protocol %q", value)
}

func portReader(key capture.Key) reader {
	return func(p *parser, value string, not bool) error {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a port", value)
		}
		p.match = append(p.match, capture.Match{Key: key, Not: not, Num: uint32(n)})
		return nil
	}
}

func readFlags(p *parser, value string, not bool) error {
	set, err := p.next()
	if err != nil {
		return err
	}
	if value+" "+set != synFlags {
		return fmt.Errorf("we do not ask for the flags %q of %q", set, value)
	}
	p.match = append(p.match, capture.Match{Key: capture.SYN, Not: not})
	return nil
}

func numberReader(key capture.Key, base int) reader {
	return func(p *parser, value string, not bool) error {
		n, err := strconv.ParseUint(value, base, 32)
		if err != nil {
			return fmt.Errorf("%q is not one number", value)
		}
		p.match = append(p.match, capture.Match{Key: key, Not: not, Num: uint32(n)})
		return nil
	}
}

func wordReader(word string, m capture.Match) reader {
	return func(p *parser, value string, not bool) error {
		if value != word || not && m.Key == capture.Original {
			return fmt.Errorf("we do not ask for %q", value)
		}
		m.Not = not
		p.match = append(p.match, m)
		return nil
	}
}

func readComment(p *parser, value string, _ bool) error {
	p.comment = value
	return nil
}

func readSeconds(p *parser, value string, _ bool) error {
	n, err := strconv.ParseUint(value, 10, 32)
	p.memories[len(p.memories)-1].seconds = uint32(n)
	return err
}

func readName(p *parser, value string, _ bool) error {
	p.memories[len(p.memories)-1].name = value
	return nil
}

func readMask(p *parser, value string, _ bool) error {
	p.memories[len(p.memories)-1].mask = value == everywhere(p.family).Addr().String()
	return nil
}

// remember turns the uses of module recent into conditions and an action.
func (p *parser) remember() error {
	for i, m := range p.memories {
		if !modelName.MatchString(m.name) || !m.mask || !m.rdest {
			return fmt.Errorf("a memory %q that is not as we make it", m.name)
		}
		if m.verb == "rcheck" {
			if err := p.time(m); err != nil {
				return err
			}
			p.match = append(p.match, capture.Match{Key: capture.InSet, Not: m.not, Name: m.name})
			continue
		}
		if i != len(p.memories)-1 || m.not || m.verb == "" || p.action.Verb != "" {
			return fmt.Errorf("the memory %q is not written last", m.name)
		}
		p.action = capture.Action{Verb: p.write(m), Name: m.name}
	}
	if p.action.Verb == "" {
		return errors.New("it does nothing")
	}
	return nil
}

// write tells the actions on a memory apart. Add is the one that asks first
// whether the key is absent.
func (p *parser) write(m memory) capture.Verb {
	if m.verb == "remove" {
		return capture.Delete
	}
	last := len(p.match) - 1
	if last >= 0 && p.match[last] == (capture.Match{Key: capture.InSet, Not: true, Name: m.name}) {
		p.match = p.match[:last]
		return capture.Add
	}
	return capture.Update
}

func (p *parser) time(m memory) error {
	timeout := time.Duration(m.seconds) * time.Second
	if before, ok := p.timeouts[m.name]; timeout == 0 || ok && before != timeout {
		return fmt.Errorf("set %s has the time %s here and %s elsewhere", m.name, timeout, before)
	}
	p.timeouts[m.name] = timeout
	return nil
}

// target takes what a rule does, which is the rest of it.
func (p *parser) target(how string) error {
	name, err := p.next()
	if err != nil {
		return err
	}
	rest := strings.Join(p.words, " ")
	p.words = nil
	if how == "-g" {
		chain, err := chainName(name)
		if err != nil || rest != "" {
			return fmt.Errorf("we do not go to %q %q", name, rest)
		}
		p.action = capture.Action{Verb: capture.Goto, Name: chain}
		return nil
	}
	a, ok := parseTarget(name, rest, p.family)
	if !ok {
		return fmt.Errorf("we do not use target %q %q", name, rest)
	}
	p.action = a
	return nil
}

// plainTargets are the targets without a number.
var plainTargets = map[string]capture.Verb{
	"RETURN ":                        capture.Return,
	"DROP ":                          capture.Drop,
	"REJECT --reject-with tcp-reset": capture.Reject,
}

// numberTargets are the targets with one number, which stands between two texts.
var numberTargets = map[string]struct {
	verb          capture.Verb
	before, after string
}{
	"REDIRECT": {capture.Redirect, "--to-ports ", ""},
	"CT":       {capture.Zone, "--zone ", ""},
	"MARK":     {capture.SetMark, "--set-xmark ", "/0xffffffff"},
	"CONNMARK": {capture.SetConnMark, "--set-xmark ", "/0xffffffff"},
}

func parseTarget(name, rest string, family capture.Families) (capture.Action, bool) {
	if verb, ok := plainTargets[name+" "+rest]; ok {
		return capture.Action{Verb: verb}, true
	}
	if name == "TPROXY" {
		port, mark, ok := strings.Cut(rest, " --on-ip "+everywhere(family).Addr().String()+" --tproxy-mark ")
		num, err1 := number(port, "--on-port ", "")
		value, err2 := number(mark, "", "/0xffffffff")
		return capture.Action{Verb: capture.TProxy, Num: num, Mark: value}, ok && err1 == nil && err2 == nil && num <= 0xffff
	}
	t, ok := numberTargets[name]
	if !ok {
		return capture.Action{}, false
	}
	n, err := number(rest, t.before, t.after)
	switch t.verb {
	case capture.Redirect, capture.Zone:
		return capture.Action{Verb: t.verb, Num: n}, err == nil && n <= 0xffff
	}
	return capture.Action{Verb: t.verb, Mark: n}, err == nil
}

// number is what stands between two texts.
func number(s, before, after string) (uint32, error) {
	s, ok1 := strings.CutPrefix(s, before)
	s, ok2 := strings.CutSuffix(s, after)
	n, err := strconv.ParseUint(s, 0, 32)
	if !ok1 || !ok2 {
		return 0, strconv.ErrSyntax
	}
	return uint32(n), err
}
