package why

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/evidence/timestamp"
)

// Names of the fields that hold a message, and of those that hold an error.
var (
	messageFields = []string{"msg", "message", "Message", "@m", "@mt", "RenderedMessage", "MessageTemplate", "short_message", "text", "event", "log"}
	errorFields   = []string{"error", "err", "exception", "Exception", "@x", "error.message", "exc_info", "stack", "stack_trace", "cause", "reason", "detail", "details", "errmsg"}
)

// detailFields hold what a message is about, if the line has no field with an error.
var detailFields = []string{"missing", "required", "invalid", "unknown", "violations", "problems", "errors", "key", "keys", "variable", "variables", "var", "vars", "env", "env_var", "envVar",
	"setting", "settings", "option", "options", "flag", "param", "parameter", "property", "file", "path", "filename"}

// before are the parts of a line before its message: levels, threads, numbers of processes, names of loggers.
var before = regexp.MustCompile(`^(?:[\s\-:|,#*]+|\[[^\]]{0,60}\]|#?\d+\]|\d+#\d+:|\d+ |[EWF] |[\w./-]+:\d+\] |[A-Za-z_][\w:.]*\] |ThreadId\(\d+\)|(?:pid|tid|thread)=\S+|(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|CRITICAL|CRIT|FATAL|ALERT|EMERG|EMERGENCY|trce|dbug|info|warn|fail|crit|error|fatal|warning)\b[:!]?(?:\s|$))`)

// tabbed matches what Istio's programs and zap's console write between the time and the message: level, scope.
var tabbed = regexp.MustCompile(`^[ \t]*[A-Za-z]+\t(?:[a-z][\w ./:-]{0,80}\t)?(?:[\w./-]+:\d+\t)?`)

// logger is the name of a logger before the message, as Java, Python and Rust write it.
var logger = regexp.MustCompile(`^(?:[A-Za-z_$][\w$]*(?:\.|::))+[\w$]+\s*:\s+|^[A-Za-z_$][\w.$]*\s{2,}:\s|^[a-z_]\w*:{1}\s+`)

// Say returns the message of a line, with its error, and without its time, level and logger.
func Say(line string) string {
	line = strings.TrimSpace(plain(line))
	if strings.HasPrefix(line, "{") {
		if text := ofJSON(line); text != "" {
			return text
		}
	}
	if text := ofFields(line); text != "" {
		return text
	}
	if strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "FAILED ") {
		return line // the runner of tests
	}
	return withFields(ofText(line))
}

// ofText returns the message of a line that is neither an object nor consists of fields.
func ofText(line string) string {
	headed := false
	if s, ok := timestamp.Find([]byte(line)); ok && s.At <= 8 && s.Form != timestamp.JSON {
		line, headed = strings.TrimLeft(strings.TrimPrefix(line[s.End:], "s]"), "] "), true
	}
	if !headed && (LevelOf(line) == NoLevel || strings.EqualFold(line[:min(len(line), 11)], "fatal error")) {
		return line
	}
	if m := tabbed.FindString(line); m != "" {
		return strings.TrimSpace(line[len(m):])
	}
	for range 8 {
		m := before.FindString(line)
		if m == "" {
			break
		}
		line = line[len(m):]
	}
	if m := logger.FindString(line); m != "" && headed && len(m) < len(line) && !strings.Contains(m, "panic") && !strings.Contains(m, "Error") && !strings.Contains(m, "Exception") {
		line = line[len(m):]
	}
	return strings.TrimSpace(line)
}

// ofCut matches the fields of an object whose end was cut off.
var ofCut = regexp.MustCompile(`"([\w.@]+)"\s*:\s*"((?:[^"\\]|\\.)*)`)

// ofJSON returns the message and the error of a line that is a JSON object; empty: it is none, or has neither.
func ofJSON(line string) string {
	var o map[string]any
	if json.Unmarshal([]byte(line), &o) != nil { // a long line was cut
		o = map[string]any{}
		for _, m := range ofCut.FindAllStringSubmatch(line, 64) {
			if _, has := o[m[1]]; !has {
				o[m[1]] = unquote(`"` + strings.TrimSuffix(m[2], `\`) + `"`)
			}
		}
	}
	if in, is := o["fields"].(map[string]any); is { // tracing of Rust
		o = in
	}
	message := field(o, messageFields)
	err := field(o, errorFields)
	if in, is := o["attr"].(map[string]any); is && err == "" { // MongoDB
		err = field(in, errorFields)
	}
	return joined(message, cmp.Or(err, detail(message, func(name string) string { return list(o[name]) })))
}

// essence returns the line of a text that tells most, with its cause.
func essence(text string) string {
	text = strings.TrimSpace(text)
	first, rest, more := strings.Cut(text, "\n")
	if !more || strings.TrimSpace(rest) == "" {
		return first
	}
	text = strings.ReplaceAll(text, `\n`, " ") // a text within the text is one line: no deeper
	var lines []Line
	for i, l := range strings.Split(text, "\n") {
		if lines = append(lines, Line{Number: i + 1, Text: []byte(l)}); i == mostOfText {
			break
		}
	}
	if r, found := Find(lines, func(b []byte) string { return string(b) }); found {
		return r.Text
	}
	return first
}

// mostOfText is the number of lines of a text in a field that are looked at.
const mostOfText = 64

// list returns a text, or a list of texts.
func list(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var all []string
		for _, e := range v[:min(len(v), 8)] {
			if text, is := e.(string); is {
				all = append(all, text)
			}
		}
		return strings.Join(all, ", ")
	}
	return ""
}

// detail returns the first field that says what a message is about, with its name, if the message does not.
func detail(message string, value func(string) string) string {
	for _, name := range detailFields {
		if v, _, _ := strings.Cut(strings.TrimSpace(value(name)), "\n"); message != "" && v != "" && !strings.Contains(message, v) {
			return name + " " + v
		}
	}
	return ""
}

// field returns the essence of the first of some fields that is a text, or an object with a message.
func field(o map[string]any, names []string) string {
	for _, name := range names {
		switch v := o[name].(type) {
		case string:
			if text := essence(v); text != "" {
				return text
			}
		case map[string]any:
			for _, of := range []string{"stack", "stack_trace", "message", "errmsg", "msg"} {
				text, is := v[of].(string)
				if text = essence(text); is && text != "" && (!strings.HasPrefix(of, "stack") || strings.Contains(text, ", caused by ")) {
					return text
				}
			}
		}
	}
	return ""
}

func joined(message, err string) string {
	if message == "" || err == "" || strings.Contains(message, err) {
		return cmp.Or(message, err)
	}
	return strings.TrimRight(message, ":. ") + ": " + err
}

var (
	messageField = regexp.MustCompile(`(?:^|\s)(?:msg|message)=("(?:[^"\\]|\\.)*"|\S+)`)
	detailField  = regexp.MustCompile(`(?:^|\s)(` + strings.Join(detailFields, "|") + `)=("(?:[^"\\]|\\.)*"|\S+)`)
	errorField   = regexp.MustCompile(`(?:^|\s)(?:error|err|reason|cause)=("(?:[^"\\]|\\.)*"|\S+)`)
)

// ofFields returns the message and the error of a line of fields: level=error msg="x" err="y".
func ofFields(line string) string {
	m := messageField.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	err := ""
	if e := errorField.FindStringSubmatch(line); e != nil {
		err = essence(unquote(e[1]))
	}
	message := essence(unquote(m[1]))
	return joined(message, cmp.Or(err, detail(message, func(name string) string {
		for _, e := range detailField.FindAllStringSubmatch(line, 16) {
			if e[1] == name {
				return unquote(e[2])
			}
		}
		return ""
	})))
}

// unquote returns a text without quotes, and with its escaped characters.
func unquote(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.Trim(s, `"`), `\"`, `"`), `\n`, "\n")
}

// fieldsAfter match a message with fields after it, as klog and zap's console write it.
var fieldsAfter = []*regexp.Regexp{
	regexp.MustCompile(`^("(?:[^"\\]|\\.)*")(?: .*)? (?:err|error)=("(?:[^"\\]|\\.)*")`),
	regexp.MustCompile(`^([^{]*?)\s*\{.*"(?:error|err)": *("(?:[^"\\]|\\.)*")`),
}

// withFields returns a message with the error of the fields that stand after it.
func withFields(text string) string {
	for _, form := range fieldsAfter {
		if m := form.FindStringSubmatch(text); m != nil {
			return joined(unquote(m[1]), essence(unquote(m[2])))
		}
	}
	return text
}
