package pasted

import (
	"bytes"
	"regexp"
	"strings"

	"outrider.dev/internal/doctor/evidence/described"
)

var (
	// machine matches the beginnings of lines that programs write and people do not: a time with its fraction or zone, fields,
	// an object, the header of klog, the time since a start. A time of a clock alone begins lines of chats too.
	machine = regexp.MustCompile(`^(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+|Z|[+-]\d\d:?\d\d)|time="|(?:ts|level|lvl)=\S+ \w+=|\{"\w|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ |\[ {0,10}\d+\.\d{3,}s?\])`)
	// levelled matches lines with a time of seconds and a level.
	levelled = regexp.MustCompile(`^(?:\S+ ){0,3}?\[?(?:\S* )?\d\d:\d\d:\d\d\b.{0,60}?\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL|LOG)\b`)
	// traced matches lines of stack traces, in the forms of several languages, and those that begin them.
	traced = regexp.MustCompile(`(?m)^(?:\s+at \S.*[(:].*|\s+from \S+:\d+:in .*|\S+:\d+:in [\x60'].*|Traceback \(most recent call last\):|\s+File ".*", line \d+.*|goroutine \d+ \[.*|panic: .*|Caused by: .*|(?:[\w$]+[.:]+)*[A-Z]\w*(?:Error|Exception)\b:? .*|Error: \S.*|Exception in thread .*|Unhandled exception.*)$`)
	// ruled matches tables with a line of dashes below their head, as clients of databases print them.
	ruled = regexp.MustCompile(`(?m)^[ \t]*[-=]{2,}(?:[+|][-=]{2,})+[+|]?[ \t]*\r?$`)
	// name matches the first line of a description.
	name = regexp.MustCompile(`^Name: {2,}[a-z0-9][-a-z0-9.]*$`)
)

// IsTable reports whether a text has a table as clients of databases print it, and so is no log.
func IsTable(text []byte) bool { return ruled.Match(text) }

// IsProse reports whether a text has sentences, and no line that only a program writes.
func IsProse(text []byte) bool {
	if ofProgram(text) || IsTable(text) {
		return false
	}
	lines, sentences, chats := 0, 0, 0
	for line := range bytes.Lines(text) {
		at := strings.TrimSpace(string(line[:min(len(line), longest)]))
		if at == "" {
			continue
		}
		if lines++; lines > sampled {
			break
		}
		if machine.MatchString(at) {
			return false
		}
		if chat.MatchString(at) {
			chats++
		}
		if len(strings.Fields(at)) >= 6 && sentence.MatchString(at) {
			sentences++
		}
	}
	return chats > 1 || 2*sentences > lines
}

// sentence matches the marks that end sentences, and those within them, where programs seldom write them.
var sentence = regexp.MustCompile(`[a-z][.?!]+(?: [A-Z"]|$)|[?!]$|\w, [a-z]+ [a-z]+ `)

// chat matches lines of chats: a time without seconds, perhaps in brackets, and who says it.
var chat = regexp.MustCompile(`^\[?\d{1,2}:\d\d(?: ?[AaPp][Mm])?\]? @?[A-Z][\w .-]{0,30}:(?: |$)`)

// printed reports whether a line, by itself, was printed by a program: of a log, or the head of a table or a description.
func printed(line string) bool {
	return machine.MatchString(line) || levelled.MatchString(line) || name.MatchString(line) || described.Is([]byte(line))
}

// ofProgram reports whether a text is a log by its form: lines that programs write are at its beginning, or a stack trace
// is in it.
func ofProgram(text []byte) bool {
	if ofObject.Match(text) && isObject.Match(text) {
		return false
	}
	n := 0
	for line := range bytes.Lines(text) {
		at := strings.TrimRight(string(line[:min(len(line), longest)]), " \t\r\n")
		if machine.MatchString(at) && !strings.HasPrefix(at, "{") || levelled.MatchString(at) {
			return true
		}
		if n++; n == sampled {
			break
		}
	}
	return traced.Match(text)
}
