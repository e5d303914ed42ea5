package shell

import (
	"time"
)

// Times returns the time for which a command sleeps before its real work, and its total running time. The latter
// is known only if the command ends with a sleep; otherwise it is 0. Everything other than sleeping counts as
// taking no time.
func Times(argv []string) (sleeps, lasts time.Duration) {
	s, ok := ScriptOf(argv)
	if !ok {
		lasts, _ = Statement{words: argv[AfterInit(argv):]}.Sleeps()
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
		all, _ = Statement{words: argv[AfterInit(argv):]}.Sleeps()
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
