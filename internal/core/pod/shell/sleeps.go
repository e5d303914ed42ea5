package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Times returns the time for which a command sleeps before its real work, and its total running time. The latter
// is known only if the command ends with a sleep; otherwise it is 0. Everything other than sleeping counts as
// taking no time.
func Times(argv []string) (sleeps, lasts time.Duration) {
	s, ok := ScriptOf(argv)
	if !ok {
		lasts, _ = Statement{words: argv[startOf(argv).at:]}.Sleeps()
		return 0, lasts
	}
	all := Statements(s.Text)
	leading := true
	for i, st := range all {
		if st.words != nil && st.words[0] == "exec" {
			st.words = st.words[1:]
		}
		d, isSleep := st.Sleeps()
		isSleep = isSleep && st.Then != "&"
		switch {
		case isSleep && i == len(all)-1:
			lasts = d
		case isSleep && leading:
			sleeps += d
		case isSleep:
			return sleeps, 0 // the sleep is part of the real work
		case !st.Neutral():
			leading = false
		}
	}
	return sleeps, lasts
}

// Sleeps returns the time for which a command sleeps in all, if each program in it succeeds. It counts the statements
// "sleep N" that run whatever a condition or a loop decides, and none in the background.
func Sleeps(argv []string) (all time.Duration) {
	s, ok := ScriptOf(argv)
	if !ok {
		all, _ = Statement{words: argv[startOf(argv).at:]}.Sleeps()
		return all
	}
	before := ""
	for _, st := range Statements(s.Text) {
		if len(st.words) > 0 && st.words[0] == "exec" {
			st.words = st.words[1:]
		}
		if d, sleeps := st.Sleeps(); sleeps && st.Then != "&" && before != "||" {
			all += d
		}
		before = st.Then
	}
	return all
}

// Endless reports whether a command line runs until it gets a signal: it comes to a loop without an end, a sleep
// infinity or a tail -f. It is false if that is not certain.
func Endless(argv []string) bool { return endless(argv, maxNested) }

func endless(argv []string, deep int) bool {
	s, ok := ScriptOf(argv)
	if !ok {
		return stays(argv)
	}
	if s.Limit > 0 || deep == 0 {
		return false
	}
	before := ""
	for _, st := range Statements(s.Text) {
		if st.Then != "&" && before != "||" && (st.loopsForever() || stays(st.Program()) || endless(st.Program(), deep-1)) {
			return true
		}
		before = st.Then
	}
	return false
}

// stays reports whether a program without a shell never ends.
func stays(words []string) bool {
	by := startOf(words)
	if by.limit > 0 || by.text > 0 || by.at >= len(words) {
		return false
	}
	words = words[by.at:]
	has := func(option string) bool {
		return slices.ContainsFunc(words[1:], func(w string) bool { return w == option || strings.HasPrefix(w, option+"=") })
	}
	switch path.Base(words[0]) {
	case "sleep":
		return has("infinity") || has("inf")
	case "tail":
		follows := slices.ContainsFunc(words[1:], func(w string) bool { return tailFollows.MatchString(w) })
		return follows && !has("--pid")
	case "pause":
		return true
	}
	return false
}

var tailFollows = regexp.MustCompile(`^(-[0-9a-zA-Z]*[fF].*|--follow.*)$`)

// loopsForever reports whether the statement is a loop without a condition, from which nothing leads out.
func (s Statement) loopsForever() bool {
	return s.endlessCondition() && !slices.ContainsFunc(s.words, func(w string) bool {
		return slices.Contains([]string{"break", "exit", "return", "exec", "kill", "pkill", "killall"}, path.Base(w))
	})
}
