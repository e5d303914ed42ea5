package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// SameProgram reports whether two command lines finally run the same program. The second command line may lack
// waits that the first one contains: a wrapper, or statements of a script. It may also have exec before its last
// command. If a script cannot be parsed, or anything else differs, the result is false.
func SameProgram(before, after []string) bool {
	if slices.Equal(before, after) {
		return true
	}
	a, isScript := ScriptOf(before)
	if !isScript { // only a wrapper may have been removed
		n := len(before) - len(after)
		return n > 0 && len(after) > 0 && slices.Equal(before[n:], after)
	}
	b, isScript := ScriptOf(after)
	if !isScript || len(before) != len(after) || a.At != b.At {
		return false
	}
	rest := slices.Clone(after)
	if rest[b.At] = a.Text; !slices.Equal(before, rest) {
		return false
	}
	return lacksWaits(a.Text, b.Text) || lacksWaits(a.Text, withoutExec(b.Text))
}

// lacksWaits reports whether the second script equals the first, except that it lacks some statements that only
// wait. The last statement must be there. The rest must run in the same way as in the first script if the
// missing statements succeed.
func lacksWaits(before, after string) bool {
	a, b := Statements(before), Statements(after)
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	then, first := ";", len(b) // separator before the present statement, and index in b of the first statement after a missing one
	for i, left := 0, len(a)-len(b); i < len(a); i++ {
		at := i - (len(a) - len(b) - left)
		if at < len(b) && a[i].raw(before) == b[at].raw(after) {
			if at > 0 && b[at-1].Then != then {
				return false
			}
			then = a[i].Then
			continue
		}
		if left--; left < 0 || !succeeds(then, a[i].Then) || !onlyWaits(before, a[i]) {
			return false
		}
		first = min(first, at)
	}
	does := func(s Statement) bool { return startsProgram(s.raw(after)) }
	return then == b[len(b)-1].Then && (len(a) == len(b) || slices.ContainsFunc(b[first:], does))
}

// succeeds reports whether a script that lacks a statement continues in the same way as after a success of that
// statement. The parameters are the separators before and after the statement.
func succeeds(before, behind string) bool {
	return before == ";" && (behind == ";" || behind == "&&") || before == "&&" && behind == "&&"
}

// startsProgram reports whether a statement runs a program from a file. If no statement does, waiting may be the
// purpose of the script.
func startsProgram(text string) (does bool) {
	file, err := parsed(text)
	if err != nil {
		return false
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			program := call.Args[0]
			if program.Lit() == "exec" && len(call.Args) > 1 {
				program = call.Args[1]
			}
			does = does || isProgram(program) || program.Lit() == ""
		}
		return !does
	})
	return does
}

// raw returns the text of a statement, without the separator after it.
func (s Statement) raw(script string) string {
	return strings.Trim(script[s.Start:s.End], " \t\r\n;&|\\")
}

// withoutExec returns a script without the exec before its last command. It does nothing if the shell would then
// run something other than the same program, or would do something after it.
func withoutExec(text string) string {
	file, err := parsed(text)
	if err != nil {
		return text
	}
	last, _ := lastOf(file.Stmts)
	if last == nil || len(last.Args) < 2 || last.Args[0].Lit() != "exec" || !isProgram(last.Args[1]) {
		return text
	}
	own := false // the script redefines the name of the program, or may do something at its end
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			own = own || n.Name.Value == last.Args[1].Lit()
		case *syntax.CallExpr:
			own = own || len(n.Args) > 0 && slices.Contains([]string{"trap", "alias", "eval", ".", "source"}, n.Args[0].Lit())
		}
		return !own
	})
	if own {
		return text
	}
	return text[:last.Args[0].Pos().Offset()] + text[last.Args[1].Pos().Offset():]
}

// builtins lists commands that shells do not run as programs (POSIX 2.14 and utilities without a file; bash(1)).
var builtins = strings.Fields(`. : [ [[ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs
	disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd
	pwd read readarray readonly return set shift shopt source suspend test time times trap true type typeset ulimit umask unalias unset wait`)

// isProgram reports whether a word is certainly the name of a program in a file: a path, or a name that is not a
// builtin. A reference to the container's arguments, such as "$@", counts too.
func isProgram(word *syntax.Word) bool {
	if name := word.Lit(); name != "" {
		return !slices.Contains(builtins, name) && !strings.ContainsAny(name, "*?[\\")
	}
	path := false
	for _, part := range word.Parts {
		if quoted, ok := part.(*syntax.DblQuoted); ok && len(word.Parts) == 1 {
			return isProgram(&syntax.Word{Parts: quoted.Parts})
		}
		switch part := part.(type) {
		case *syntax.Lit:
			path = path || strings.Contains(part.Value, "/")
		case *syntax.SglQuoted:
			path = path || strings.Contains(part.Value, "/")
		case *syntax.ParamExp:
			path = path || len(word.Parts) == 1 && (part.Param.Value == "@" || isDigits(part.Param.Value))
		default:
			return false
		}
	}
	return path
}
