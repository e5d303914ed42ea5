package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// counts are the numbers of packages and tests of a step, without subtests.
type counts struct {
	packages, passed int
	failed           []string       // names
	skipped          map[string]int // by reason, including subtests
}

// events is a writer for the output of "go test -json". It counts the tests, and prints the output like "go
// test": the output of failed tests, and a line for each package.
type events struct {
	counts
	out  io.Writer
	rest []byte
	text map[string]map[string][]string // output by package and test
}

func newEvents(out io.Writer) *events {
	return &events{out: out, counts: counts{skipped: map[string]int{}}, text: map[string]map[string][]string{}}
}

// An event is one line of the output of "go test -json". Source: go doc test2json, go help buildjson.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

func (e *events) Write(p []byte) (int, error) {
	e.rest = append(e.rest, p...)
	for {
		line, rest, ok := bytes.Cut(e.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		e.rest = rest
		var ev event
		if json.Unmarshal(line, &ev) != nil {
			fmt.Fprintf(e.out, "%s\n", line) // a line of the go command itself
			continue
		}
		e.take(ev)
	}
}

func (e *events) take(ev event) {
	switch ev.Action {
	case "build-output":
		io.WriteString(e.out, ev.Output)
	case "output":
		if e.text[ev.Package] == nil {
			e.text[ev.Package] = map[string][]string{}
		}
		e.text[ev.Package][ev.Test] = append(e.text[ev.Package][ev.Test], ev.Output)
	case "pass", "fail", "skip":
		if ev.Test == "" {
			e.end(ev)
			return
		}
		e.test(ev)
	}
}

// test counts a test that has ended, and drops its output unless it has failed.
func (e *events) test(ev event) {
	top := !strings.Contains(ev.Test, "/")
	switch ev.Action {
	case "pass":
		e.passed += one(top)
	case "fail":
		if top {
			e.failed = append(e.failed, ev.Test)
		}
		return
	case "skip":
		e.skipped[reason(e.text[ev.Package][ev.Test])]++
	}
	delete(e.text[ev.Package], ev.Test)
}

// end prints the output of a package that has ended, with the output of tests that failed or did not end.
func (e *events) end(ev event) {
	e.packages++
	texts := e.text[ev.Package]
	last := texts[""]
	delete(texts, "")
	for _, test := range sortedKeys(texts) {
		io.WriteString(e.out, strings.Join(kept(texts[test]), ""))
	}
	io.WriteString(e.out, strings.Join(kept(last), ""))
	delete(e.text, ev.Package)
}

// kept returns the lines of an output without those that only "go test -v" prints.
func kept(output []string) (out []string) {
	for _, line := range output {
		if chatter.MatchString(line) {
			continue
		}
		out = append(out, line)
	}
	return out
}

var chatter = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) |PASS\n|\s*--- (PASS|SKIP): )`)

// reason returns the last line that a skipped test logged, without its position in the source.
func reason(output []string) string {
	last := "no reason"
	for _, line := range output {
		if place := where.FindString(line); place != "" {
			last = strings.TrimSpace(line[len(place):])
		}
	}
	return last
}

var where = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: `)

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
