package shell

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// A Statement is one command of a script. A loop or a condition is one statement, including everything in
// it.
type Statement struct {
	words      []string // without quotes
	Then       string   // the separator after it: ; && || | &
	Start, End int      // offsets in the script; a statement ends where the next one begins
}

// Statements returns the commands of a script in order. A pipe, && and || separate statements, as the end of
// a line does. For a script that the shell could not read it returns none.
func Statements(text string) []Statement {
	file, err := parsed(text, syntax.KeepComments(true))
	if err != nil {
		return nil
	}
	f := flattener{text: text}
	for _, s := range file.Stmts {
		f.statement(s, ";")
	}
	if len(f.out) > 0 {
		last := &f.out[len(f.out)-1]
		last.End = len(text)
		if last.Then == ";" {
			last.Then = ""
		}
	}
	return f.out
}

// Limits for a script that is read. The parser, and everything that reads its tree, is recursive. The limit
// counts the characters that may begin a level, because only parsing would show the real depth.
const (
	maxScript = 64 << 10 // bytes
	maxLevels = 500
)

var level = regexp.MustCompile("[({`\\[!|]|&&|<<|\\b(if|while|until|for|select|case|time|function|coproc)\\b")

// parsed returns the syntax tree of a script.
func parsed(text string, options ...syntax.ParserOption) (*syntax.File, error) {
	if len(text) > maxScript || len(level.FindAllStringIndex(text, maxLevels+1)) > maxLevels {
		return nil, errors.New("the script is longer, or may nest deeper, than what is read")
	}
	return syntax.NewParser(options...).Parse(strings.NewReader(text), "")
}

// A flattener turns the syntax tree of a script into statements.
type flattener struct {
	text string
	out  []Statement
	line uint // the line on which the last statement ends
}

// statement adds s, which is followed by a separator.
func (f *flattener) statement(s *syntax.Stmt, then string) {
	if b, ok := s.Cmd.(*syntax.BinaryCmd); ok && !s.Negated {
		f.statement(b.X, b.Op.String())
		f.statement(b.Y, then)
		return
	}
	if s.Background {
		then = "&"
	}
	start := int(s.Pos().Offset())
	if n := len(f.out); n > 0 {
		f.out[n-1].End = start
		for _, c := range s.Comments { // a comment on its own line is about the next statement
			if c.Pos().Line() > f.line && c.Pos().Offset() < s.Pos().Offset() {
				f.out[n-1].End = int(c.Pos().Offset())
				break
			}
		}
	}
	f.line = s.End().Line()
	f.out = append(f.out, Statement{words: f.words(s), Then: then, Start: start})
}

// words returns the words of a command without quotes. For a loop or a condition it includes everything in
// it, with the separators.
//
// complexity: one case for each kind of command.
func (f *flattener) words(s *syntax.Stmt) []string {
	var out []string
	add := func(words ...string) { out = append(out, words...) }
	all := func(list []*syntax.Stmt) {
		for _, s := range list {
			add(f.words(s)...)
			if s.Background {
				add("&")
			} else {
				add(";")
			}
		}
	}
	if s.Negated {
		add("!")
	}
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		for _, a := range c.Assigns {
			add(f.raw(a))
		}
		add(f.argv(c.Args)...)
	case *syntax.BinaryCmd:
		add(f.words(c.X)...)
		add(c.Op.String())
		add(f.words(c.Y)...)
	case *syntax.WhileClause:
		add(map[bool]string{true: "until", false: "while"}[c.Until])
		all(c.Cond)
		add("do")
		all(c.Do)
		add("done")
	case *syntax.ForClause:
		add("for")
		if list, ok := c.Loop.(*syntax.WordIter); ok {
			add(list.Name.Value, "in")
			add(f.argv(list.Items)...)
		} else {
			add(f.raw(c.Loop))
		}
		add(";", "do")
		all(c.Do)
		add("done")
	case *syntax.IfClause:
		for word := "if"; c != nil; c, word = c.Else, "elif" {
			if c.Cond == nil {
				add("else")
			} else {
				add(word)
				all(c.Cond)
				add("then")
			}
			all(c.Then)
		}
		add("fi")
	case *syntax.CaseClause:
		add("case", f.raw(c.Word), "in")
		for _, item := range c.Items {
			all(item.Stmts)
		}
		add("esac")
	case *syntax.Block:
		add("{")
		all(c.Stmts)
		add("}")
	case *syntax.Subshell:
		add("(")
		all(c.Stmts)
		add(")")
	default:
		add(strings.Fields(f.raw(c))...)
	}
	for _, r := range s.Redirs {
		add(f.raw(r))
	}
	return out
}

func (f *flattener) raw(n syntax.Node) string { return f.text[n.Pos().Offset():n.End().Offset()] }

// argv returns the words without quotes.
func (f *flattener) argv(words []*syntax.Word) (out []string) {
	for _, w := range words {
		out = append(out, f.unquoted(w.Parts))
	}
	return out
}

// unquoted returns a word without its quotes; substitutions of the shell stay as they are written.
func (f *flattener) unquoted(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(escaped.ReplaceAllString(p.Value, "$1"))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(f.unquoted(p.Parts))
		default:
			b.WriteString(f.raw(p))
		}
	}
	return b.String()
}

var escaped = regexp.MustCompile(`\\(.)`)

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Program returns the words from the program's name on: without assignments, exec, ! and keywords of a loop.
func (s Statement) Program() []string {
	for i, w := range s.words {
		name, _, assigns := strings.Cut(w, "=")
		if slices.Contains([]string{"exec", "!", "until", "while", "if", "do", "then", ";", "(", "{", "command", "nohup"}, w) ||
			assigns && shellName.MatchString(name) {
			continue
		}
		return s.words[i:]
	}
	return nil
}

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Neutral reports whether the statement only prepares: it does not wait, and is not the container's actual
// work.
func (s Statement) Neutral() bool {
	p := s.Program()
	return len(p) == 0 || slices.Contains([]string{"set", "echo", "export", "printf", "date", "true", ":", "umask", "trap", "cd"}, p[0])
}

// Sleeps returns how long a plain "sleep N" takes; several operands add up.
func (s Statement) Sleeps() (time.Duration, bool) {
	if len(s.words) < 2 || path.Base(s.words[0]) != "sleep" {
		return 0, false
	}
	var all time.Duration
	for i, operand := range s.words[1:] {
		d, ok := sleepTime(operand)
		if !ok {
			return all, i > 0 && strings.ContainsAny(operand, "<>") // it is a redirection
		}
		all += d
	}
	return all, true
}

// sleepTime reads an operand of sleep: 5, 0.5, 5s, 2m.
func sleepTime(operand string) (time.Duration, bool) {
	if operand == "infinity" {
		return 0, false
	}
	if n, err := strconv.ParseFloat(operand, 64); err == nil && n > 0 && n < 1e6 {
		return time.Duration(n * float64(time.Second)), true
	}
	d, err := time.ParseDuration(operand)
	return d, err == nil && d > 0
}

// Loops reports whether the statement polls repeatedly, with a limit or without: a loop, or a curl that
// retries.
func (s Statement) Loops() bool {
	return s.IsLoop() ||
		slices.Contains(s.words, "--retry") || slices.ContainsFunc(s.words, func(w string) bool { return strings.HasPrefix(w, "--retry=") })
}

var (
	localURL    = regexp.MustCompile(`(?:^|[\s/@\["'])(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[?::1\]?):(\d{1,5})\b`)
	devTCP      = regexp.MustCompile(`/dev/tcp/(?:localhost|127\.0\.0\.1)/(\d{1,5})\b`)
	twoWords    = regexp.MustCompile(`(?:^|\s)(?:localhost|127\.0\.0\.1|0\.0\.0\.0|::1)\s+(\d{1,5})\b`)
	portClients = regexp.MustCompile(`(?:^|[\s/$(` + "`" + `\["'])(?:curl|wget|nc|ncat|netcat|http|grpc_health_probe)\s`)
)

// PolledPort returns the local port that the statement polls, if it polls one.
func (s Statement) PolledPort() (int, bool) {
	all := strings.Join(s.words, " ")
	forms := []*regexp.Regexp{devTCP}
	if portClients.MatchString(all) {
		forms = append(forms, localURL, twoWords)
	}
	for _, form := range forms {
		if m := form.FindStringSubmatch(all); m != nil {
			n, err := strconv.Atoi(m[1])
			return n, err == nil && n > 0 && n < 1<<16
		}
	}
	return 0, false
}
