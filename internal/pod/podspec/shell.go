package podspec

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A statement is one command of a script, with where it stands: a loop or a
// condition is one statement with all that is in it.
type statement struct {
	words      []string // without quotes
	then       string   // the separator after it: ; && || | &
	start, end int      // in the script, the separator included
}

// A script is the text that a shell runs, and where in argv it stands.
type script struct {
	text    string
	at      int  // index in the words of the container's command and args
	errexit bool // it is run with -e
}

// shellScript finds the text that "sh -c TEXT" runs, also behind an init program
// such as tini. argv is command and args together.
func shellScript(argv []string) (script, bool) {
	i := afterInit(argv)
	if i >= len(argv) || !slices.Contains([]string{"sh", "bash", "ash", "dash", "zsh", "busybox"}, path.Base(argv[i])) {
		return script{}, false
	}
	options := i + 1
	for i++; i < len(argv); i++ {
		option := argv[i]
		switch {
		case strings.HasPrefix(option, "-") && strings.Contains(option, "c") && !strings.HasPrefix(option, "--"):
			if i+1 < len(argv) {
				return script{text: argv[i+1], at: i + 1, errexit: setsErrexit(argv[options : i+1])}, true
			}
			return script{}, false
		case !strings.HasPrefix(option, "-") && option != "sh":
			return script{}, false
		}
	}
	return script{}, false
}

// afterInit skips programs that only reap processes: tini, dumb-init.
func afterInit(argv []string) int {
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

// openers and closers of what belongs together.
var (
	openers = map[string]bool{"do": true, "then": true, "case": true, "{": true, "(": true}
	closers = map[string]bool{"done": true, "fi": true, "esac": true, "}": true, ")": true}
)

// statements splits a script as far as it has to be understood: quotes,
// comments, ; && || & | newlines, loops and conditions. Whatever is not closed
// runs to the end.
func statements(text string) []statement {
	var out []statement
	var cur statement
	depth := 0
	flush := func(end int, then string) {
		cur.end, cur.then = end, then
		if len(cur.words) > 0 {
			out = append(out, cur)
		}
		cur = statement{start: end}
	}
	for _, t := range tokens(text) {
		switch {
		case t.separator && depth <= 0 && !cur.opensBody():
			flush(t.end, plainSeparator(t.word))
			continue
		case t.separator:
			cur.words = append(cur.words, plainSeparator(t.word))
			continue
		case !t.quoted && openers[t.word]:
			depth++
		case !t.quoted && closers[t.word]:
			depth--
		}
		if len(cur.words) == 0 {
			cur.start = t.start
		}
		cur.words = append(cur.words, t.word)
	}
	flush(len(text), "")
	return out
}

// plainSeparator is && || | & as such, and ; for an end of a line.
func plainSeparator(s string) string {
	if s = strings.Trim(s, "\n"); separators[s] {
		return s
	}
	return ";"
}

// opensBody says whether the words so far begin a loop or a condition whose body
// is still to come.
func (s statement) opensBody() bool {
	return len(s.words) > 0 && slices.Contains([]string{"until", "while", "if", "for"}, s.words[0]) &&
		!slices.ContainsFunc(s.words, func(w string) bool { return closers[w] && len(w) > 1 })
}

type token struct {
	word       string
	start, end int
	separator  bool
	quoted     bool
}

// tokens are the words and separators of a script.
func tokens(text string) []token {
	var out []token
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			i += 2
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.IndexByte(";&|\n", c) >= 0:
			start := i
			for i < len(text) && strings.IndexByte(";&|\n", text[i]) >= 0 {
				i++
			}
			out = append(out, token{word: text[start:i], start: start, end: i, separator: true})
		default:
			t := word(text, i)
			out, i = append(out, t), t.end
		}
	}
	return out
}

// word reads one word from i, without its quotes.
func word(text string, i int) token {
	t := token{start: i}
	var b strings.Builder
	quote := byte(0)
	for ; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, t.quoted = c, true
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case quote == 0 && (c == '>' || c == '<') && i > t.start && text[i-1] != '>' && text[i-1] != '<' && text[i-1] != '&' && !isDigits(b.String()):
			t.word, t.end = b.String(), i
			return t
		case quote == 0 && c == '&' && i > t.start && (text[i-1] == '>' || text[i-1] == '<'):
			b.WriteByte(c) // 2>&1
		case quote == 0 && strings.IndexByte(" \t\r\n;&|", c) >= 0:
			t.word, t.end = b.String(), i
			return t
		default:
			b.WriteByte(c)
		}
	}
	t.word, t.end = b.String(), len(text)
	return t
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// program is the words from the name of the program on: without assignments,
// exec, ! and keywords of a loop.
func (s statement) program() []string {
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

// neutral says whether the statement only prepares: it neither waits nor is it
// what the container is for.
func (s statement) neutral() bool {
	p := s.program()
	return len(p) == 0 || slices.Contains([]string{"set", "echo", "export", "printf", "date", "true", ":", "umask", "trap", "cd"}, p[0])
}

// sleeps returns how long a plain "sleep N" takes.
// Of several operands it takes the sum.
func (s statement) sleeps() (time.Duration, bool) {
	if len(s.words) < 2 || path.Base(s.words[0]) != "sleep" {
		return 0, false
	}
	var all time.Duration
	for i, operand := range s.words[1:] {
		d, ok := sleepTime(operand)
		if !ok {
			return all, i > 0 && strings.ContainsAny(operand, "<>") // a redirection
		}
		all += d
	}
	return all, true
}

// sleepTime reads the operand of sleep: 5, 0.5, 5s, 2m.
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

// loops says whether the statement asks again and again, for ever or not: a loop, or a
// curl that retries.
func (s statement) loops() bool {
	return s.isLoop() ||
		slices.Contains(s.words, "--retry") || slices.ContainsFunc(s.words, func(w string) bool { return strings.HasPrefix(w, "--retry=") })
}

var (
	localURL = regexp.MustCompile(`(?:^|[\s/@\["'])(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[?::1\]?):(\d{1,5})\b`)
	devTCP   = regexp.MustCompile(`/dev/tcp/(?:localhost|127\.0\.0\.1)/(\d{1,5})\b`)
	twoWords = regexp.MustCompile(`(?:^|\s)(?:localhost|127\.0\.0\.1|0\.0\.0\.0|::1)\s+(\d{1,5})\b`)
	askers   = regexp.MustCompile(`(?:^|[\s/$(` + "`" + `\["'])(?:curl|wget|nc|ncat|netcat|http|grpc_health_probe)\s`)
)

// asksPort returns the local port that the statement asks, if it asks one.
func (s statement) asksPort() (int, bool) {
	all := strings.Join(s.words, " ")
	forms := []*regexp.Regexp{devTCP}
	if askers.MatchString(all) {
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
