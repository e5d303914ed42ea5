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

// A Statement is a command of a script. A loop or a condition with everything in it is one statement.
type Statement struct {
	words      []string // without quotes
	Then       string   // the separator after it: ; && || | &
	Start, End int      // offsets in the script; End is the Start of the next statement
}

// Statements returns the commands of a script in order. They are separated by the end of a line, by pipes, && and
// ||. It returns none if the script cannot be parsed.
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

// Limits for a script that is parsed. The parser and the functions that read the syntax tree are recursive, so
// the depth must be limited before parsing. maxLevels therefore limits the number of characters and words that
// may begin a level.
const (
	maxScript = 64 << 10 // bytes
	maxLevels = 500
)

var level = regexp.MustCompile("[({`\\[!|]|&&|<<|\\b(if|while|until|for|select|case|time|function|coproc)\\b")

// parsed returns the syntax tree of a script. It fails if a limit is exceeded.
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

// statement adds s to the statements, with the separator after s.
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
		for _, c := range s.Comments { // a comment on a separate line belongs to the next statement
			if c.Pos().Line() > f.line && c.Pos().Offset() < s.Pos().Offset() {
				f.out[n-1].End = int(c.Pos().Offset())
				break
			}
		}
	}
	f.line = s.End().Line()
	f.out = append(f.out, Statement{words: f.words(s), Then: then, Start: start})
}

// words returns the words of a command without quotes. For a loop or a condition it returns all words inside,
// with the separators.
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

// unquoted returns the parts of a word without quotes. Substitutions are not replaced.
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

// Program returns the words of the statement from the name of the program on. Assignments, exec, !, and keywords
// of a loop before it are left out.
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

// Neutral reports whether the statement only prepares for something else: it neither waits nor does the actual
// work of the container.
func (s Statement) Neutral() bool {
	p := s.Program()
	return len(p) == 0 || slices.Contains([]string{"set", "echo", "export", "printf", "date", "true", ":", "umask", "trap", "cd"}, p[0])
}

// Announces reports whether the statement only prints that something is awaited or ready.
func (s Statement) Announces() bool {
	return len(s.words) > 1 && slices.Contains([]string{"echo", "printf"}, s.words[0]) && (s.Then == ";" || s.Then == "&&") &&
		!slices.ContainsFunc(s.words, func(w string) bool { return strings.ContainsAny(w, "<>$`") }) && announces.MatchString(strings.Join(s.words[1:], " "))
}

var announces = regexp.MustCompile(`(?i)\b(wait|waiting|waited|ready|available|healthy|sidecar|proxy|envoy|istio|linkerd|is up)\b`)

// Sleeps returns the duration of a statement "sleep N"; several operands are added. It returns false for any
// other statement.
func (s Statement) Sleeps() (time.Duration, bool) {
	if len(s.words) < 2 || path.Base(s.words[0]) != "sleep" {
		return 0, false
	}
	var all time.Duration
	for i, operand := range s.words[1:] {
		d, ok := sleepTime(operand)
		if !ok {
			return all, i > 0 && strings.ContainsAny(operand, "<>") // a redirection follows
		}
		all += d
	}
	return all, true
}

// sleepTime parses an operand of sleep, such as 5, 0.5, 5s, 2m.
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

// Loops reports whether the statement polls repeatedly, with or without a limit: it is a loop, or a curl with
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

// PolledPort returns the local port that the statement polls; false if it polls none.
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
