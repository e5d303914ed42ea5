package iptables

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/capture"
)

// parser reads the words of one rule.
type parser struct {
	words    []string
	family   capture.Families
	module   string
	rule     capture.Rule
	timeouts map[string]time.Duration // of sets, filled in
}

// parseRule is the inverse of writer.rule, but for the family: it reads a rule as one
// family has it. Timeouts of sets go to timeouts.
func parseRule(spec string, family capture.Families, timeouts map[string]time.Duration) (capture.Rule, error) {
	words, err := split(spec)
	if err != nil {
		return capture.Rule{}, err
	}
	p := parser{words: words, family: family, timeouts: timeouts}
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

// next reads the comment, an action, the name of a module, or a condition.
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
		p.rule.Action = capture.Action{Verb: e.verb, Num: v.num, Mark: v.mark, Name: v.name}
		// Adding is an update that comes after the condition that the key is absent.
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
		if t.key == capture.InSet {
			if err := p.timeout(v); err != nil {
				return err
			}
		}
		p.words = rest
		p.rule.Match = append(p.rule.Match, capture.Match{Key: t.key, Not: not, Num: v.num, Last: v.last, Prefix: v.prefix, Name: v.name})
		return nil
	}
	return fmt.Errorf("module %q, %q: not a condition or a target that we write", p.module, strings.Join(p.words, " "))
}

func (p *parser) timeout(v values) error {
	if before, ok := p.timeouts[v.name]; v.timeout == 0 || ok && before != v.timeout {
		return fmt.Errorf("set %s has the timeout %s here and %s elsewhere", v.name, v.timeout, before)
	}
	p.timeouts[v.name] = v.timeout
	return nil
}
