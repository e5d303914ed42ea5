package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Call is a call of a program in a command line.
type Call struct {
	Program string   // base name of the program
	Args    []string // arguments without quotes; substitutions are not replaced
	Word    int      // index of the word in the command line: the program or the script
	At      int      // offset of the call in that word, if it is a script
	Final   bool     // it is the last thing that the script does: not in a loop, in a pipe or in the background
	Execed  bool     // "exec" precedes it, so that it replaces the shell
	Always  bool     // it is a statement of the script itself and in the foreground, so that it is always executed
	Alone   bool     // it is a simple command without redirections, and no other process runs in the background
	Nested  bool     // it is in a script within the script: At is the offset of the shell that runs that
}

// Calls returns the calls of programs in a command line: argv itself, or the calls in its script, including those
// in loops, conditions and substitutions, and those of a script within the script in place of its shell. It returns
// none if the script cannot be parsed.
func Calls(argv []string) []Call { return calls(argv, maxNested) }

// maxNested is the number of scripts within each other that are read.
const maxNested = 4

func calls(argv []string, deep int) []Call {
	s, ok := ScriptOf(argv)
	if !ok {
		i := AfterInit(argv)
		if c, ok := callOf(argv[i:]); ok {
			c.Word, c.Final, c.Execed = i, true, true
			return []Call{c}
		}
		return nil
	}
	if deep == 0 {
		return nil
	}
	file, err := parsed(s.Text)
	if err != nil {
		return nil
	}
	f := flattener{text: s.Text}
	final, alone := lastOf(file.Stmts)
	always := map[*syntax.CallExpr]bool{}
	for _, s := range file.Stmts {
		if call, ok := s.Cmd.(*syntax.CallExpr); ok && !s.Background {
			always[call] = true
		}
	}
	var out []Call
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			if c, ok := callOf(f.argv(call.Args)); ok {
				c.Word, c.Final, c.At = s.At, call == final, int(call.Args[0].Pos().Offset())
				c.Alone, c.Always = c.Final && alone, always[call]
				out = append(out, c.within(f.argv(call.Args), deep-1)...)
			}
		}
		return true
	})
	return out
}

// within returns the calls of the script that a call runs, or the call itself if it runs none.
func (c Call) within(argv []string, deep int) []Call {
	if _, isScript := ScriptOf(argv); !isScript {
		return []Call{c}
	}
	inner := calls(argv, deep)
	for i, n := range inner {
		inner[i].Word, inner[i].At, inner[i].Nested, inner[i].Alone = c.Word, c.At, true, false
		inner[i].Final, inner[i].Execed, inner[i].Always = c.Final && n.Final, c.Execed && n.Execed, c.Always && n.Always
	}
	if inner == nil {
		return []Call{c}
	}
	return inner
}

// lastOf returns the last command of a script if it runs in the foreground, also at the end of a list with &&;
// nil otherwise.
func lastOf(all []*syntax.Stmt) (last *syntax.CallExpr, alone bool) {
	if len(all) == 0 {
		return nil, false
	}
	s := all[len(all)-1]
	for {
		if s.Background || s.Negated {
			return nil, false
		}
		b, ok := s.Cmd.(*syntax.BinaryCmd)
		if !ok {
			break
		}
		if b.Op != syntax.AndStmt { // it is in a pipe, or may not run
			return nil, false
		}
		s = b.Y
	}
	last, _ = s.Cmd.(*syntax.CallExpr)
	waits := slices.ContainsFunc(all, func(s *syntax.Stmt) bool { return s.Background })
	return last, last != nil && len(s.Redirs) == 0 && !waits
}

// callOf returns the call that remains after all programs that only start another one.
func callOf(words []string) (Call, bool) {
	by := startOf(words)
	execed := slices.Contains(words[:by.at], "exec")
	if by.text > 0 { // su -c
		return Call{Program: by.last, Args: words[1:], Execed: execed}, true
	}
	if by.at >= len(words) {
		if len(words) > 1 && words[0] != "exec" { // it starts nothing, such as command -v
			return Call{Program: path.Base(words[0]), Args: words[1:]}, true
		}
		return Call{}, false
	}
	return Call{Program: path.Base(words[by.at]), Args: words[by.at+1:], Execed: execed}, words[by.at] != ""
}

// localWords lists names and addresses of the pod itself, as seen from inside.
var localWords = []string{"localhost", "127.0.0.1", "[::1]", "0.0.0.0"}

// IsLocal reports whether a text contains a name or an address of the pod itself.
func IsLocal(text string) bool {
	return slices.ContainsFunc(localWords, func(w string) bool { return strings.Contains(text, w) })
}
