package iptables

import (
	"errors"
	"fmt"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// parser parses the words of one rule.
type parser struct {
	words  []string
	family capture.Families
	module string
	rule   capture.Rule
	sets   *setReader
}

// A setReader collects the sets that rules look up.
type setReader struct {
	kernel map[string]ipset.Set   // sets of ipset, by the kernel's names
	used   map[string]bool        // the kernel's sets that a rule looks up
	byName map[string]capture.Set // sets found so far, by the model's names
}

func newSetReader(kernel map[string]ipset.Set) *setReader {
	return &setReader{kernel, map[string]bool{}, map[string]capture.Set{}}
}

// lookup returns the condition for a set of ipset.
func (s *setReader) lookup(kernel string, source bool, family capture.Families) (capture.Match, error) {
	k, ok := s.kernel[kernel]
	if !ok {
		return capture.Match{}, fmt.Errorf("there is no set %s", kernel)
	}
	set, err := k.Model(source)
	if err != nil {
		return capture.Match{}, err
	}
	generation, _, _ := ipset.SplitName(kernel)
	if f := set.Key.Family(); f != 0 && f != family || kernel != ipset.Name(generation, set, family) {
		return capture.Match{}, fmt.Errorf("set %s is for the other family", kernel)
	}
	if before, ok := s.byName[set.Name]; ok && (before.Key != set.Key || before.Timeout != set.Timeout) {
		return capture.Match{}, fmt.Errorf("set %s is looked up in two ways", kernel)
	}
	for other := range s.used { // any order: all are of the same generation
		if g, _, _ := ipset.SplitName(other); g != generation {
			return capture.Match{}, fmt.Errorf("rules refer to %s and to %s", kernel, other)
		}
	}
	s.used[kernel], s.byName[set.Name] = true, set
	return capture.Match{Key: capture.InSet, Name: set.Name, Num: uint32(set.Key)}, nil
}

// timed records the timeout of a dynamic set.
func (s *setReader) timed(v values) error {
	before, ok := s.byName[v.name]
	if v.timeout == 0 || ok && (before.Constant() || before.Timeout != v.timeout) {
		return fmt.Errorf("set %s has the timeout %s here and %s elsewhere", v.name, v.timeout, before.Timeout)
	}
	s.byName[v.name] = capture.Set{Name: v.name, Timeout: v.timeout}
	return nil
}

// parseRule is the inverse of writer.rule, except for the rule's family: it parses a rule of one family. The sets
// that the rule looks up are added to the argument sets.
func parseRule(spec string, family capture.Families, sets *setReader) (capture.Rule, error) {
	words, err := split(spec)
	if err != nil {
		return capture.Rule{}, err
	}
	p := parser{words: words, family: family, sets: sets}
	for len(p.words) > 0 {
		if err := p.next(); err != nil {
			return capture.Rule{}, err
		}
	}
	if p.rule.Action.Verb == "" {
		return capture.Rule{}, errors.New("it does nothing")
	}
	p.rule.Match = capture.Canonical(p.rule.Match)
	return p.rule, nil
}

// next parses a comment, an action, the name of a module, or a condition.
func (p *parser) next() error {
	if len(p.words) >= 4 && strings.Join(p.words[:3], " ") == "-m comment --comment" {
		p.rule.Reason, p.words = p.words[3], p.words[4:]
		return nil
	}
	if p.rule.Action.Verb != "" {
		return fmt.Errorf("%q after the action", strings.Join(p.words, " "))
	}
	if done, err := p.action(); done {
		return err
	}
	if len(p.words) >= 2 && p.words[0] == "-m" {
		p.module, p.words = p.words[1], p.words[2:]
		return nil
	}
	return p.condition()
}

func (p *parser) action() (done bool, err error) {
	for _, e := range effects {
		v := values{family: p.family}
		rest, ok, err := match(e.words, p.words, &v)
		if !ok {
			continue
		}
		p.words = rest
		if err == nil && v.list != "" {
			var set capture.Match
			set, err = p.sets.lookup(v.list, false, p.family)
			v.name, v.num = set.Name, set.Num
		}
		p.rule.Action = capture.Action{Verb: e.verb, Num: v.num, Mark: v.mark, Name: v.name}
		// An Add is written as an update after the condition that the key is absent.
		list := p.rule.Match
		last := len(list) - 1
		if e.verb == capture.Update && last >= 0 && list[last] == (capture.Match{Key: capture.InSet, Not: true, Name: v.name}) {
			p.rule.Action.Verb, p.rule.Match = capture.Add, list[:last]
		}
		return true, err
	}
	return false, nil
}

func (p *parser) condition() error {
	line := p.words
	not := line[0] == "!"
	if not {
		line = line[1:]
	}
	for _, t := range terms {
		inModule := t.module == "" || t.module == p.module || t.module == transport && (p.module == "tcp" || p.module == "udp")
		if !inModule {
			continue
		}
		v := values{family: p.family}
		rest, ok, err := match(t.words, line, &v)
		if !ok {
			continue
		}
		if err != nil {
			return err
		}
		m := capture.Match{Key: t.key, Num: v.num, Last: v.last, Prefix: v.prefix, Name: v.name}
		switch t.module {
		case "recent":
			err = p.sets.timed(v)
		case "set":
			m, err = p.sets.lookup(v.list, strings.HasSuffix(t.words, " src"), p.family)
		}
		m.Not = not
		p.words, p.rule.Match = rest, append(p.rule.Match, m)
		return err
	}
	return fmt.Errorf("module %q, %q: not a condition or a target that we write", p.module, strings.Join(p.words, " "))
}
