package shell

import (
	"path"
	"slices"
	"strings"
)

// A Script is the text of a script in a container's command line.
type Script struct {
	Shell   string // base name of the shell
	Text    string
	At      int  // index of the word with the script in the container's command and args
	Errexit bool // the shell runs with -e when the script begins
}

// ScriptOf returns the script TEXT of a command line "sh -c TEXT". An init program such as tini, and env, may
// precede the shell. The parameter argv is command and args as one list.
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

// options parses the options of a shell. It returns the number of words of all options, and whether the text of a
// script follows them (POSIX, sh; bash(1), Options).
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
			for range strings.Count(strings.ToLower(word), "o") { // the name of an option follows in a separate word for each o
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

// AfterInit returns the index of the first word after an init program (tini, dumb-init), which only starts and
// reaps processes; 0 if there is none.
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

// afterEnv returns the index of the first word after the program env at i, its options and its variables; i if
// there is no env.
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
