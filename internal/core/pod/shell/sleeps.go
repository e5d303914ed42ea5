package shell

import (
	"time"
)

// Times returns how long a command sleeps before it begins, and how long it lasts. The second is known only
// for a command that ends with a sleep; otherwise it is 0. Everything between two sleeps counts as taking no
// time.
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
			return sleeps, 0 // the sleep is in the middle of real work
		case !st.Neutral():
			leading = false
		}
	}
	return sleeps, lasts
}
