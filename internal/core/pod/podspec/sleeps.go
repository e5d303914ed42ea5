package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ownTimes is what the command of a container says about its own time, behind its gate if it has
// one: how long it sleeps before it begins, and how long it lasts if it ends with a sleep, 0 if
// that is unknown. What stands between two sleeps takes no time here.
func ownTimes(container corev1.Container) (sleeps, lasts time.Duration) {
	c := *container.DeepCopy()
	unwrap(&c)
	argv := carrier{Container: &c}.argv()
	s, ok := shellScript(argv)
	if !ok {
		lasts, _ = statement{words: argv[afterInit(argv):]}.sleeps()
		return 0, lasts
	}
	all := statements(s.text)
	leading := true
	for i, st := range all {
		if st.words != nil && st.words[0] == "exec" {
			st.words = st.words[1:]
		}
		d, isSleep := st.sleeps()
		isSleep = isSleep && st.then != "&"
		switch {
		case isSleep && i == len(all)-1:
			lasts = d
		case isSleep && leading:
			sleeps += d
		case isSleep:
			return sleeps, 0 // in the midst of real work
		case !st.neutral():
			leading = false
		}
	}
	return sleeps, lasts
}
