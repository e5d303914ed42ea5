package shell

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A launcher is a program that runs the program in its arguments.
type launcher struct {
	valued   string // options whose value is the next word, with spaces between
	operands int    // number of own arguments before the program, without options
	shows    string // options with which it starts nothing
	assigns  bool   // assignments of variables may precede the program
}

// launchers lists programs that only start another one. Sources: their manual pages (POSIX; GNU coreutils 9; util-linux
// 2.40; busybox 1.36; tini, dumb-init, gosu, su-exec, runit, s6).
var launchers = map[string]launcher{
	"exec": {valued: "-a"}, "command": {shows: "-v -V"}, "nohup": {}, "setsid": {}, "busybox": {shows: "--list --help --install"}, "with-contenv": {},
	"env":     {valued: "-u -C --unset --chdir", shows: "-S --split-string", assigns: true},
	"nice":    {valued: "-n --adjustment"},
	"ionice":  {valued: "-c -n -p -P -u --class --classdata --pid"},
	"chrt":    {valued: "-T -P -D", operands: 1},
	"taskset": {operands: 1},
	"time":    {valued: "-f -o --format --output"},
	"timeout": {valued: "-k -s --kill-after --signal", operands: 1},
	"stdbuf":  {valued: "-i -o -e --input --output --error"},
	"sudo":    {valued: "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot", shows: "-l -v -V -k", assigns: true},
	"doas":    {valued: "-u -C"},
	"gosu":    {operands: 1, shows: "--version --help"}, "su-exec": {operands: 1}, "setuidgid": {operands: 1}, "s6-setuidgid": {operands: 1},
	"setpriv": {valued: "--ambient-caps --inh-caps --bounding-set --reuid --regid --ruid --euid --rgid --egid --groups --securebits --pdeathsig --selinux-label --apparmor-profile", shows: "-d --dump"},
	"chpst":   {valued: "-u -U -b -e -/ -n -l -L -m -d -o -p -f -c -r -t -C"},
	"chroot":  {valued: "--userspec --groups", operands: 1},
	"tini":    {valued: "-p -e"}, "tini-static": {valued: "-p -e"}, "dumb-init": {valued: "-r --rewrite"}, "catatonit": {}, "docker-init": {valued: "-p -e"},
}

// program returns the index of the program that the launcher at word i of argv starts; len(argv) if it starts none.
func (l launcher) program(argv []string, i int) int {
	shows, valued := strings.Fields(l.shows), strings.Fields(l.valued)
	for i++; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--":
			return min(i+1+l.operands, len(argv))
		case slices.Contains(shows, word):
			return len(argv)
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if takesNext(word, valued) {
				i++
			}
		case l.assigns && strings.Contains(word, "="):
		default:
			return min(i+l.operands, len(argv))
		}
	}
	return len(argv)
}

// takesNext reports whether the value of the options in a word is the next word (POSIX, Utility Syntax Guidelines).
func takesNext(word string, valued []string) bool {
	if strings.HasPrefix(word, "--") {
		return slices.Contains(valued, word)
	}
	for i, letter := range word[1:] {
		if slices.Contains(valued, "-"+string(letter)) {
			return i+1+len(string(letter)) == len(word) // else the rest of the word is the value
		}
	}
	return false
}

// A start describes what the launchers at the beginning of a command line start.
type start struct {
	at    int           // index of the program that is not a launcher; len(argv) if there is none
	text  int           // index of the script of a su -c; 0 if there is none
	last  string        // the launcher before the program
	limit time.Duration // of a timeout
}

// startOf skips the launchers at the beginning of a command line.
func startOf(argv []string) (out start) {
	for out.at < len(argv) {
		name := path.Base(argv[out.at])
		if name == "su" || name == "runuser" {
			if program, text := switched(argv, out.at); text > 0 || program > 0 {
				out.text, out.at, out.last = text, program, name
				if text > 0 {
					return out
				}
				continue
			}
			return out
		}
		l, is := launchers[name]
		if !is {
			return out
		}
		next := l.program(argv, out.at)
		if name == "timeout" && next <= len(argv) {
			out.limit = limitOf(argv[next-1])
		}
		out.at, out.last = next, name
	}
	return out
}

// limitOf returns the duration of a timeout, such as 30, 1.5m or 2h.
func limitOf(word string) time.Duration {
	if days, isDays := strings.CutSuffix(word, "d"); isDays {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n > 0 && n < 1e4 {
			return time.Duration(n * float64(24*time.Hour))
		}
	}
	d, _ := sleepTime(word)
	return d
}

// switchValued lists the options of su and runuser whose value is the next word.
var switchValued = strings.Fields("-s -g -G -u -w -T --shell --group --supp-group --user --whitelist-environment")

// switched returns what su or runuser at word i runs: the script of its option -c, or (with runuser -u USER) a program.
// Both are 0 if it runs a login shell.
func switched(argv []string, i int) (program, text int) {
	byUser := false
	for i++; i < len(argv); i++ {
		word, more := argv[i], i+1 < len(argv)
		switch {
		case more && scriptFollows(word):
			return 0, i + 1
		case word == "--user" || word == "-u":
			byUser = true
			i++
		case byUser && word == "--" && more:
			return i + 1, 0
		case byUser && !strings.HasPrefix(word, "-"):
			return i, 0
		case strings.HasPrefix(word, "-") && takesNext(word, switchValued):
			i++
		}
	}
	return 0, 0
}

// scriptFollows reports whether a word is the option -c, alone or after other letters: the next word is a script.
func scriptFollows(word string) bool {
	short := strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--")
	return word == "--command" || short && strings.HasSuffix(word, "c")
}
