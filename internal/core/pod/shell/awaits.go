package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Awaits returns the commands for whose success a command line waits, if it does nothing but wait: "nc db 5432" of
// "until nc db 5432; do sleep 1; done". It returns nil if a part of it may do something else.
func Awaits(argv []string) (out []string) {
	script, is := ScriptOf(argv)
	if !is {
		if call, is := callOf(argv); is && waiter.MatchString(call.Program) {
			return []string{strings.Join(argv, " ")}
		}
		return nil
	}
	for _, s := range Statements(script.Text) {
		_, sleeps := s.Sleeps()
		awaited := s.awaited()
		switch {
		case s.Then == "&":
			return nil
		case awaited != "":
			out = append(out, awaited)
		case !sleeps && !s.Neutral() && s.words[0] != "exit":
			return nil
		}
	}
	return out
}

// waiter matches the programs that only wait, by their names: wait-for-it, wait-for, wait4x.
var waiter = regexp.MustCompile(`^wait(?:[-_]?for|4x)`)

// redirection matches a redirection of a command.
var redirection = regexp.MustCompile(`^(?:\d*|&)[<>]`)

// awaited returns the command after whose success a loop ends; empty: the statement is no such loop.
func (s Statement) awaited() string {
	do := slices.Index(s.words, "do")
	if do < 0 || !s.AwaitsCommand() {
		return ""
	}
	cond := s.words[1:do]
	if s.words[0] == "while" && cond[0] == "!" {
		cond = cond[1:]
	}
	if s.words[0] == "for" || s.endlessCondition() {
		body := s.words[do+1:]
		cond = conditionOf(body, slices.Index(body, "break"))
	}
	text := slices.DeleteFunc(slices.Clone(trimmed(cond)), redirection.MatchString)
	if len(text) > 0 && (path.Base(text[0]) == "sleep" || text[0] == "!") {
		return ""
	}
	return strings.Join(text, " ")
}
