package shell

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"outrider.dev/internal/base/contract"
)

// A waiting records what a statement does besides waiting.
type waiting struct {
	flattener
	more bool            // the statement does something else than wait
	sets map[string]bool // variables that the statement sets
}

// onlyWaits reports whether a statement of a script does nothing but wait for something in this pod: it sends
// requests to local addresses, and sleeps. If it sets a variable, the variable must not be used after the
// statement, nor be exported before it.
func onlyWaits(script string, s Statement) bool {
	text := s.raw(script)
	file, err := parsed(text)
	if err != nil {
		return false
	}
	w := waiting{flattener: flattener{text: text}, sets: map[string]bool{}}
	syntax.Walk(file, func(n syntax.Node) bool {
		w.node(n)
		return !w.more
	})
	before, after := script[:s.Start], script[s.End:]
	for name := range w.sets { // any order: one is enough
		word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
		w.more = w.more || word.MatchString(after) || exports.MatchString(before) && word.MatchString(before)
	}
	return !w.more
}

var exports = regexp.MustCompile(`\b(export|declare|typeset|set\s+-\w*a|allexport)\b`)

// node examines one node of a statement's syntax tree.
//
// complexity: one case for each kind of part.
func (w *waiting) node(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.FuncDecl, *syntax.DeclClause, *syntax.CoprocClause:
		w.more = true
	case *syntax.Stmt:
		w.more = w.more || n.Background
	case *syntax.Assign:
		if n.Name != nil {
			w.sets[n.Name.Value] = true
		}
	case *syntax.WordIter:
		w.sets[n.Name.Value] = true
	case *syntax.ArithmCmd, *syntax.LetClause, *syntax.CStyleLoop:
		for _, name := range shellWord.FindAllString(w.raw(n), -1) {
			w.sets[name] = true
		}
	case *syntax.Redirect:
		target := w.raw(n.Word)
		reads := n.Op == syntax.RdrIn || n.Op == syntax.DplIn || n.Op == syntax.DplOut
		w.more = w.more || !reads && target != "/dev/null" && !devTCP.MatchString(target)
	case *syntax.CallExpr:
		w.more = w.more || len(n.Args) > 0 && !waitingCall(w.argv(n.Args))
	}
}

var shellWord = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

// harmless lists programs without side effects.
var harmless = strings.Fields(": [ break continue date echo expr false grep printf seq sleep test true")

// waitingCall reports whether a command inside a loop does nothing but wait.
func waitingCall(words []string) bool {
	if words[0] == "exec" && len(words) == 1 { // it has only redirections
		return true
	}
	if words[0] == "exit" { // an exit with an error prevents the start of the program, as a gate that waits does
		return len(words) > 1 && isDigits(words[1]) && strings.Trim(words[1], "0") != ""
	}
	call, ok := callOf(words)
	switch {
	case !ok || call.Execed:
		return false
	case slices.Contains(harmless, call.Program):
		return true
	case call.Program == "pilot-agent" || call.Program == path.Base(contract.AgentPath):
		return len(call.Args) > 0 && call.Args[0] == "wait"
	}
	return asksLocally(call)
}

// askers contains the programs with which people poll, and for each the options that do more than poll. An option
// is harmless with one of the listed values.
var askers = map[string]map[string][]string{
	"curl": {"-o": {"/dev/null"}, "--output": {"/dev/null"}, "-X": {"GET", "HEAD"}, "--request": {"GET", "HEAD"}, "-O": nil, "--remote-name": nil, "-d": nil, "--data": nil, "--data-raw": nil,
		"--data-binary": nil, "--data-urlencode": nil, "--json": nil, "-T": nil, "--upload-file": nil, "-F": nil, "--form": nil, "-D": {"/dev/null"}, "-c": nil, "-K": nil},
	"wget":              {"-O": {"-", "/dev/null"}, "-o": {"/dev/null"}, "--output-document": {"-", "/dev/null"}, "--post-data": nil, "--post-file": nil, "--method": {"GET", "HEAD"}},
	"nc":                {"-l": nil, "-e": nil},
	"ncat":              {"-l": nil, "-e": nil},
	"netcat":            {"-l": nil, "-e": nil},
	"pg_isready":        {},
	"grpc_health_probe": {},
}

// readyPath matches the end of URL paths by which programs report whether they are ready.
var readyPath = regexp.MustCompile(`(?i)(health|ready|live|alive|status|startup|ping|server_info)[a-z]*/?$`)

// asksLocally reports whether a call does nothing but poll something in this pod.
func asksLocally(call Call) bool {
	refused, ok := askers[call.Program]
	local := false
	for i, arg := range call.Args {
		next := ""
		if i+1 < len(call.Args) {
			next = call.Args[i+1]
		}
		is, elsewhere := destination(arg)
		ok = ok && !doesMore(refused, arg, next) && !elsewhere
		local = local || is
	}
	return ok && local
}

// doesMore reports whether an argument is an option that does more than poll. The parameter next is the argument
// after it, which may be the option's value.
func doesMore(refused map[string][]string, arg, next string) bool {
	not := func(option, value string) bool {
		values, is := refused[option]
		return is && !slices.Contains(values, value)
	}
	if name, value, joined := strings.Cut(arg, "="); joined {
		next, arg = value, name
	}
	if not(arg, next) {
		return true
	}
	if len(arg) < 3 || arg[0] != '-' || arg[1] == '-' {
		return false
	}
	for i, letter := range arg[1:] { // several options in one word: the first one that takes a value has the rest of the word as its value, or the next word
		option := "-" + string(letter)
		if _, is := refused[option]; is {
			return not(option, cmp.Or(arg[i+2:], next))
		}
	}
	return false
}

// destination reports whether an argument is an address of this pod, and whether it leads elsewhere: to another
// host, or to a path that is not known for readiness.
func destination(arg string) (local, elsewhere bool) {
	if !IsLocal(arg) && arg != "::1" {
		return false, strings.Contains(arg, "://") || hostPort.MatchString(arg)
	}
	_, at, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "http://"), "https://"), "/")
	at, _, _ = strings.Cut(at, "?")
	return true, at != "" && !readyPath.MatchString(path.Clean(at))
}

// hostPort matches an address of another host.
var hostPort = regexp.MustCompile(`^[A-Za-z0-9_.-]+:[0-9$]`)
