package shell

import (
	"path"
	"slices"
	"strings"
)

// A Script is the text that a shell runs, and where in argv it stands.
type Script struct {
	Shell   string // its base name
	Text    string
	At      int  // index in the words of the container's command and args
	Errexit bool // it is run with -e
}

// ScriptOf finds the text that "sh -c TEXT" runs, also behind an init program such as tini, and
// behind env. argv is command and args together.
func ScriptOf(argv []string) (Script, bool) {
	i := afterEnv(argv, AfterInit(argv))
	if i >= len(argv) || !slices.Contains([]string{"sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"}, path.Base(argv[i])) {
		return Script{}, false
	}
	s := Script{Shell: path.Base(argv[i])}
	if i++; s.Shell == "busybox" && i < len(argv) && (argv[i] == "sh" || argv[i] == "ash") {
		i++
	}
	n, hasText := s.options(argv[i:])
	if i += n; !hasText || i >= len(argv) {
		return Script{}, false
	}
	s.Text, s.At = argv[i], i
	return s, true
}

// options reads those of a shell, and returns how many words they are, and whether a text follows them
// (POSIX, sh; bash(1), Options).
func (s *Script) options(words []string) (n int, hasText bool) {
	for ; n < len(words); n++ {
		switch word := words[n]; {
		case word == "--" || word == "-":
			return n + 1, hasText
		case word == "--rcfile" || word == "--init-file":
			n++
		case strings.HasPrefix(word, "--"):
		case strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+"):
			on := word[0] == '-'
			hasText = hasText || on && strings.Contains(word, "c")
			if strings.Contains(word, "e") {
				s.Errexit = on
			}
			for range strings.Count(strings.ToLower(word), "o") { // each has a name
				if n++; n < len(words) && words[n] == "errexit" {
					s.Errexit = on
				}
			}
		default:
			return n, hasText
		}
	}
	return n, hasText
}

// AfterInit skips programs that only reap processes: tini, dumb-init.
func AfterInit(argv []string) int {
	if len(argv) == 0 || !slices.Contains([]string{"tini", "dumb-init", "catatonit", "docker-init"}, path.Base(argv[0])) {
		return 0
	}
	i := 1
	for i < len(argv) && strings.HasPrefix(argv[i], "-") {
		i++
		if argv[i-1] == "--" {
			break
		}
	}
	return i
}

// afterEnv skips an env at i, with its options and variables.
func afterEnv(argv []string, i int) int {
	if i >= len(argv) || path.Base(argv[i]) != "env" {
		return i
	}
	for i++; i < len(argv); i++ {
		switch word := argv[i]; {
		case strings.HasPrefix(word, "-S") || strings.HasPrefix(word, "--split-string"):
			return len(argv)
		case word == "-u" || word == "-C" || word == "--unset" || word == "--chdir":
			i++
		case !strings.HasPrefix(word, "-") && !strings.Contains(word, "="):
			return i
		}
	}
	return i
}
