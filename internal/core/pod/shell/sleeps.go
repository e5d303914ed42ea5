package shell

import (
	"time"
)

// Times is what a command says about its own time: how long it sleeps before it begins, and
// how long it lasts if it ends with a sleep, 0 if that is unknown. What stands between two
// sleeps takes no time here.
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
			return sleeps, 0 // in the midst of real work
		case !st.Neutral():
			leading = false
		}
	}
	return sleeps, lasts
}
