package shell

import (
	"path"
	"slices"
	"strings"
)

// A Script is the text that a shell runs, with its position in argv.
type Script struct {
	Shell   string // base name of the shell
	Text    string
	At      int  // index in the words of the container's command and args
	Errexit bool // the shell runs with -e
}

// ScriptOf finds the text that "sh -c TEXT" runs, also behind an init program such as tini, and behind env.
// The parameter argv is command and args as one list.
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

// options reads the options of a shell. It returns how many words they take, and whether a script text
// follows (POSIX, sh; bash(1), Options).
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
			for range strings.Count(strings.ToLower(word), "o") { // each o has a name of an option in the next word
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

// AfterInit returns the index after the init programs, which only reap processes: tini, dumb-init.
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

// afterEnv returns the index after an env at i, with its options and variables.
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
