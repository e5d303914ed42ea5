package mask

import (
	"bytes"
	"regexp"
	"strings"
)

// A value is the text that follows a name, such as a key of YAML or a variable. It may be a secret.
type value struct {
	b          []byte
	line, from int  // offsets in b at which the name and the value begin
	itself     bool // the name means a secret itself, not an attribute of one
	rest       bool // the value contains spaces, and extends to the end of the line or to the quote that precedes its name
	quote      byte // the byte before the name
}

var (
	// below matches the end of a line whose value is on the next line, in YAML perhaps as a block.
	below = regexp.MustCompile(`^(?:([|>])[-+0-9]*|\\|([\[(]))?[ \t\r]*\n(?:[ \t\r]*\n)?`)
	// tagged matches the type or the anchor of a value in YAML.
	tagged = regexp.MustCompile(`^[!&][\w!]*[ \t]+`)
	// indent matches the beginning of a line of a log or of YAML, before its content.
	indent = regexp.MustCompile(`^` + stamp + `([ \t]*)(-[ \t]+)?["']*`)
	// fields matches lines that begin another field or element, and so are not part of the value.
	fields = regexp.MustCompile(`^[\w./-]+["']?:(?:\s|$)|^-?$|^[{\[]`)
	// another matches the text after a separator that shows that the value has ended, such as another name and
	// "=".
	another = regexp.MustCompile(`^(?:[\s"']|$|quot;|#3|\\*["']?[\w.-]{1,64}\\*["']?[ \t]*(?:[:=]|%3[dD])[^=])`)
	// quotes matches an opening quote as in programming languages. coded matches one in HTML or a URL, such as
	// &quot; or %22, with the quoted text.
	quotes, coded = regexp.MustCompile("^[bru]?(\\\\*)([\"'`])"), regexp.MustCompile(`^(?:&quot;|&#3[49];|%2[27])([^&%\n]*)`)
	// refer matches the text in brackets of a reference to a secret, such as name: x.
	refer = regexp.MustCompile(`(?i)(?:name|key|ref|type|kind)\w*\\*["']?[ \t]*[:=]`)
	// escaped matches an escaped line break within a JSON text, followed by a line of one word.
	escaped = regexp.MustCompile(`^(?:\\r)?\\n[ \t]*([^\s\\"':]+)(?:[\\"'\n]|$)`)
)

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

// ends reports whether a value may end before b.
func ends(b []byte) bool {
	return len(b) == 0 || strings.IndexByte(" \t\r\n,;:.)}]>|&\"'`\\", b[0]) >= 0
}

// text returns the beginning of the first span of the value, at most reach bytes.
func (v value) text(found []span) []byte {
	return v.b[found[0].from:min(found[0].to, found[0].from+reach)]
}

// spans returns the positions of the value, without quotes and brackets around it. If surely is true, the value
// is secret; only then may it be on the following lines.
func (v value) spans(surely bool) []span {
	b, s, end := v.b, v.from, 0
	if s >= len(b) {
		return nil
	}
	near := b[s:min(len(b), s+reach)]
	if m := below.FindSubmatch(near); m != nil {
		if !surely {
			return nil
		}
		return v.below(s+len(m[0]), len(m[1]) > 0, len(m[2]) > 0)
	}
	open := strings.IndexByte("([{<", b[s])
	if m := escaped.FindSubmatchIndex(near); m != nil && surely {
		s, end = s+m[2], s+m[3]
	} else if m := coded.FindSubmatchIndex(near); m != nil && !v.rest {
		s, end = s+m[2], s+m[3]
	} else if m := quotes.FindSubmatch(near); m != nil && !v.rest {
		s += len(m[0])
		end = closing(b, s, len(m[1]), m[2][0])
	} else if n := shut(b[s:], open); n > 0 && !v.rest && !bytes.HasPrefix(near, []byte(Masked)) {
		return v.bracketed(s+1, s+n)
	} else if open != strings.IndexByte("([{<", '{') || v.rest {
		end = v.bare(s + len(tagged.Find(near)))
	}
	if end <= s {
		return nil
	}
	return []span{{s, end}}
}

// closing returns the end of a quoted value that begins at s. It is at the same quote as the opening one,
// preceded by no more backslashes than that, or else at the end of the line.
func closing(b []byte, s, slashes int, quote byte) int {
	line := s + len(b[s:])
	if n := bytes.IndexByte(b[s:], '\n'); n >= 0 {
		line = s + n
	}
	for i, n := s, 0; i < len(b) && (b[i] != '\n' || i == line); i++ {
		if b[i] == '\\' {
			n++
			continue
		}
		before := n
		n = 0
		next := b[i+1:]
		switch {
		case b[i] != quote, before > slashes && (before-slashes)%(2*(slashes+1)) != 0:
		case quote == '\'' && len(next) > 0 && next[0] == quote && before == 0 && i > s: // as in it''s
			i++
		case i > line && !ends(bytes.TrimLeft(next, ",;")): // the quote belongs to another value on the next line
			return line
		case len(next) > 1 && slashes == 0 && (!ends(next) || isQuote(next[0]) && !ends(next[1:])): // "ab"cd, as in a shell
			return i + run(b[i:], func(c byte) bool { return c > ' ' })
		default:
			return i - before
		}
	}
	return line
}

// bare returns the end of an unquoted value that begins at s.
func (v value) bare(s int) int {
	depth := 0
	for i := s; i < len(v.b); i++ {
		slashes := 0
		for i+slashes < len(v.b) && v.b[i+slashes] == '\\' {
			slashes++
		}
		if slashes > 0 && (i+slashes == len(v.b) || strings.IndexByte("nrt\n\r", v.b[i+slashes]) >= 0) {
			return i
		}
		at := i
		i += slashes
		c, next := v.b[i], v.b[i+1:]
		switch {
		case slashes > 0 && !isQuote(c):
		case c == '\n', c == '\r', isSpace(c) && !v.rest && (depth == 0 || v.b[s] != '$'): // a space ends the value, but not within $(a command)
			return i
		case isQuote(c):
			// As in username="x", realm="y".
			if n := bytes.IndexAny(next, string(c)+"\n"); v.rest && at > s && v.b[at-1] == '=' && n >= 0 && next[n] == c {
				i += n + 1
			} else if v.rest && isQuote(v.quote) && c == v.quote || (!v.rest || !isQuote(v.quote)) && ends(next) {
				return at
			}
		case v.rest:
		case strings.IndexByte(",;&|", c) >= 0 && another.Match(next[:min(len(next), 2*longestName)]), c == '%' && bytes.HasPrefix(next, []byte("26")):
			return i
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}>", c) >= 0:
			if depth--; depth < 0 && ends(next) {
				return i
			}
			depth = max(0, depth)
		}
	}
	return len(v.b)
}

// shut returns the position of the bracket that closes the one at the beginning of b, in the same line; 0 if
// there is none.
func shut(b []byte, bracket int) int {
	depth := 0
	for i := 0; bracket >= 0 && i < min(len(b), reach) && b[i] != '\n'; i++ {
		switch b[i] {
		case "([{<"[bracket]:
			depth++
		case ")]}>"[bracket]:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

// bracketed returns the positions of the values within brackets; nil if the brackets contain a reference to a
// secret.
func (v value) bracketed(s, end int) (found []span) {
	in, object := v.b[s:end], v.b[s-1] == '{'
	if refer.Match(in) || object && !v.itself || v.b[s-1] == '[' && bytes.IndexByte(in, '{') >= 0 {
		return nil
	}
	if !object || !bytes.ContainsAny(in, ":\"") {
		from := s + len(in) - len(bytes.TrimLeft(in, " \t\"'\\"))
		if to := s + len(bytes.TrimRight(in, " \t\"'\\")); from < to {
			found = append(found, span{from, to})
		}
		return found
	}
	for i := s; i < end; i++ {
		if v.b[i] != ':' && v.b[i] != '=' {
			continue
		}
		at := i + 1 + run(v.b[i+1:end], isSpace)
		if at < end && v.b[at] != '{' && v.b[at] != '[' {
			for _, one := range (value{b: v.b[:end], line: v.line, from: at}).spans(false) {
				found, i = append(found, one), one.to-1
			}
		}
	}
	return found
}

// below returns the positions of a value on the lines below its name: a YAML block, a value on the next line, or
// the elements of a list.
func (v value) below(s int, block, list bool) (found []span) {
	start := 1 + bytes.LastIndexByte(v.b[:v.line], '\n')
	inset := len(indent.FindSubmatch(v.b[start:v.line])[1])
	for first := true; s < len(v.b); first = false {
		line, _, _ := bytes.Cut(v.b[s:], []byte("\n"))
		m := indent.FindSubmatch(line)
		text := bytes.TrimRight(line[len(m[0]):], " \t\r,\"'")
		from, deeper, element := s+len(m[0]), len(m[1]) > inset, len(m[2]) > 0
		s += len(line) + 1
		switch {
		case block && len(text) == 0:
			continue
		case !deeper && (block || !element && (!first || inset > 0) || !plausible(string(text))), !block && (fields.Match(text) || bytes.ContainsAny(text, " \t") && !v.rest):
			return found
		}
		found = append(found, span{from, from + len(text)})
		if !element && !block && !list {
			return found
		}
	}
	return found
}
