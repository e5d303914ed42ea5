package shell

import (
	"path"
	"slices"
	"strings"
	"time"
)

// A Script is the text of a script in a container's command line.
type Script struct {
	Shell   string // base name of the shell
	Text    string
	At      int  // index of the word with the script in the container's command and args
	Errexit bool // the shell runs with -e when the script begins

	Limit time.Duration // the program timeout ends the shell after this time; 0: nothing does
}

// ScriptOf returns the script TEXT of a command line "sh -c TEXT". Programs that only start another one, such as tini,
// env, timeout and su, may precede the shell. The parameter argv is command and args as one list.
func ScriptOf(argv []string) (Script, bool) {
	by := startOf(argv)
	i := by.at
	if by.text > 0 {
		return Script{Shell: "sh", Text: argv[by.text], At: by.text, Limit: by.limit}, true
	}
	if i >= len(argv) || !slices.Contains(shells, path.Base(argv[i])) {
		return Script{}, false
	}
	s := Script{Shell: path.Base(argv[i]), Limit: by.limit}
	if by.last == "busybox" {
		s.Shell = by.last
	}
	i++
	n, hasText := s.options(argv[i:])
	if i += n; !hasText || i >= len(argv) {
		return Script{}, false
	}
	s.Text, s.At = argv[i], i
	return s, true
}

var shells = []string{"sh", "bash", "ash", "dash", "zsh", "ksh", "mksh"}

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
	if len(argv) == 0 || !slices.Contains([]string{"tini", "tini-static", "dumb-init", "catatonit", "docker-init"}, path.Base(argv[0])) {
		return 0
	}
	return launchers[path.Base(argv[0])].program(argv, 0)
}
