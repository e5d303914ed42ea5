// Package pasted reads texts in which people put what they copied from a terminal between sentences: tickets, mails, notes.
// It finds the pieces that kubectl printed, says which command printed each or which sentence announces it, and removes
// fences, indents and quotes. What the pieces mean is read elsewhere, as if each was a file of its own.
//
// A sentence alone is never evidence, whatever it says. A piece that no command and no form shows to be output of kubectl
// counts only as a log, and only if its heading announces one: whoever reads it must find the container in the heading.
//
// Where to read:
//
//	pasted.go    pieces, and the table of their forms
//	blocks.go    blocks of a text: in fences, indented, quoted, after a prompt
//	command.go   commands of kubectl
//	forms.go     lines that programs print, and people do not write
//	streams.go   logs of several containers, line by line, in one text
//	fragment.go  what a heading says of the pod and the container of a piece
//	states.go    states of containers that templates print, one container a line
//	rows.go      lines of tables between sentences, and states that people wrote in words
//	words.go     containers and runs in the names of files and in headings
//	labels.go    containers that the lines of a log name
package pasted

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/timestamp"
)

// A Form says what a piece is.
type Form int

// The forms of pieces.
const (
	None    Form = iota // nothing that is read
	Objects             // YAML or JSON, perhaps a part of a pod
	States              // what a template printed of the states of containers; Text is the JSON of a part of a pod
	Text                // what package described reads
	Log
)

// A Piece is a part of a text. The fields that neither its command nor the rest of the text says are empty.
type Piece struct {
	Form                      Form
	Namespace, Pod, Container string
	Of                        string          // the workload whose log the command asks for, instead of the pod
	Previous, Cut             bool            // the command asks for the log of the run before; it shows a part of it
	Heading                   string          // of a log whose command is not known: the line before it
	Words                     bool            // of states: a person wrote them down
	Rows                      []described.Row // of text: pods whose state a person wrote in words; one may have no name
	Line                      int             // number of the first line
	Lines                     []int           // numbers of the lines, if others stand between them
	Text                      []byte
}

// Padded returns the text at the lines at which it stands in the whole.
func (p Piece) Padded() []byte {
	return append(bytes.Repeat([]byte("\n"), max(p.Line-1, 0)), p.Text...)
}

// Whole reports whether the piece has whole objects, of a kind.
func (p Piece) Whole() bool { return hasKind.Match(p.Text) }

// Document returns the text of objects at the lines at which it stands in the whole.
func (p Piece) Document() []byte {
	padded := p.Padded()
	if text := bytes.TrimSpace(p.Text); p.Line < 2 || len(text) == 0 || text[0] == '{' || text[0] == '[' {
		return padded
	}
	return slices.Concat(padded[:p.Line-2], []byte("---\n"), p.Text)
}

// Unheaded is the heading of a log above which there is neither a command nor a sentence.
const Unheaded = "-"

// Limits of a text, in bytes, and of its pieces.
const (
	Most       = 512 << 10
	mostPieces = 64
)

// byCommand has the forms of what a command prints. The first row that fits counts; an empty field fits all.
var byCommand = []struct {
	verb, resource, output string // output: how the format begins
	form                   Form
}{
	{"logs", "", "", Log},
	{"get", "pods", "jsonpath", States},
	{"get", "pods", "go-template", States},
	{"get", "pods", "custom-columns", States},
	{"get", "", "jsonpath", None},
	{"get", "", "go-template", None},
	{"get", "", "custom-columns", None},
	{"get", "", "yaml", Objects},
	{"get", "", "json", Objects},
	{"get", "", "", Text},
	{"describe", "", "", Text},
	{"events", "", "", Text},
}

// byContent has the forms of texts of which no command is known.
var byContent = []struct {
	form Form
	is   func(text []byte, heading string) bool
}{
	{Objects, func(text []byte, _ string) bool { return isObject.Match(text) && !isDraft.Match(text) }},
	{States, func(text []byte, _ string) bool { return states(string(text), command{}) != nil }},
	{Text, func(text []byte, _ string) bool { return described.Is(text) }},
	{Log, isLog},
}

var (
	isObject = regexp.MustCompile(`(?m)^(?:kind: (?:Pod|List|Event|PodList|EventList)[ \t]*\r?$|[ \t]*(?:- )?"?(?:init)?[cC]ontainerStatuses"?:|[ \t]*(?:- )?(?:lastState|state):[ \t]*\r?$)|"kind":[ \t]*"(?:Pod|List|Event|PodList|EventList)"|"(?:init)?[cC]ontainerStatuses":|"(?:lastState|state)":[ \t]*\{`)
	hasKind  = regexp.MustCompile(`(?m)^kind:[ \t]|"kind":`)
	isDraft  = regexp.MustCompile(`(?m)^[ \t]*(?:[-+] ?[-+]|@@ |[+-] {2,}\S+:)|\{\{[-. ]`) // a patch or a template, not an object that was
	ofObject = regexp.MustCompile(`(?m)^(?:[ \t]*(?:- )?"?[A-Za-z][\w./-]*"?:(?:[ \t]|\r?$)|[ \t]*[\[{])`)
)

// isLog reports whether a text without a command is the log that a heading announces.
func isLog(text []byte, heading string) bool {
	switch {
	case aside.MatchString(heading):
		return false
	case ofProgram(text) && !IsTable(text):
		return true
	case heading == "":
		return false
	}
	n := 0
	for line := range bytes.Lines(text) {
		if _, has := timestamp.Find(line); has {
			return true
		}
		if n++; n == 20 {
			break
		}
	}
	return announces.MatchString(heading) && !ofObject.Match(text)
}

var (
	announces = regexp.MustCompile(`(?i)\b(?:logs?|logged|output|printed|prints|says|said|wrote|writes|stderr|stdout|run|start|attempt|restart|crash|trace|traceback|tail|last lines)\b`)
	// aside has the words of headings of texts that are of something else than the pod, or did not happen.
	aside = regexp.MustCompile(`(?i)\b(?:example|e\.g\.|expected|expect|should|would|documentation|docs|upstream issue|github|staging|another|other|elsewhere|unrelated|caller|client|peer|last (?:week|month|year)|months? ago|weeks? ago|how it looks when|compare|healthy one|for comparison)\b`)
)

// Is reports whether a text has pieces. Of one that is not in Markdown a command, or the form alone, must show it.
func Is(head []byte, markdown bool) bool {
	shown := markdown || prompt.Match(head) || bare.Match(head) || fence.Match(head) || mayBeStates(head) || mayBeRows(head)
	if len(head) > Most || !shown && !described.Is(head) {
		return false
	}
	logs, others := 0, 0
	for _, p := range Read(head) {
		switch {
		case p.Form == Log && p.Heading == "", p.Form != Log && shown:
			return true
		case p.Form == Log:
			logs++
		default:
			others++
		}
	}
	return logs > 0 && others > 0 // a table alone is read as it is
}

// Read returns the pieces of a text, in its order.
func Read(text []byte) (out []Piece) {
	var pods []command // of the pods that commands name
	var rows []described.Row
	for _, s := range sections(text) {
		if s.command.pod != "" {
			pods = append(pods, s.command)
		}
		for _, p := range s.pieces() {
			if p.Form == None || len(out) >= mostPieces {
				continue
			}
			out = append(out, p)
			if p.Form == Text {
				rows = append(rows, described.Read(p.Text).Pods...)
			}
		}
	}
	for _, p := range loose(text, out) {
		if len(out) < mostPieces {
			out = append(out, p)
			rows = append(rows, described.Read(p.Text).Pods...)
		}
	}
	slices.SortStableFunc(out, func(a, b Piece) int { return a.Line - b.Line })
	pod, namespace := only(pods, rows)
	if at := slices.IndexFunc(rows, func(r described.Row) bool { return r.Name == pod && r.Namespace != "" }); at >= 0 {
		namespace = cmp.Or(namespace, rows[at].Namespace)
	}
	for i := range out {
		p := &out[i]
		if p.Form == Log && p.Heading != "" {
			p.Pod, p.Namespace = headed(p.Heading, rows, out[:i])
			continue
		}
		if p.Of != "" {
			p.ofWorkload(rows, pod, namespace)
			continue
		}
		if p.Pod == "" && (p.Form != Text || !isTable(p.Text)) && (p.Namespace == "" || namespace == "" || p.Namespace == namespace) {
			p.Pod, p.Namespace = pod, namespace
		}
	}
	return out
}

// ofWorkload finds the pod of a log of a workload: the only one of the rows, or else the one that the text is about.
func (p *Piece) ofWorkload(rows []described.Row, pod, namespace string) {
	if strings.HasPrefix(pod, p.Of+"-") {
		p.Pod, p.Namespace = pod, cmp.Or(p.Namespace, namespace)
	}
	for _, r := range rows {
		switch {
		case !strings.HasPrefix(r.Name, p.Of+"-") || r.Name == p.Pod:
		case p.Pod != "": // of several pods
			p.Pod = ""
			return
		default:
			p.Pod, p.Namespace = r.Name, cmp.Or(p.Namespace, r.Namespace)
		}
	}
}

// isTable reports whether a text of kubectl has rows alone, which name their objects.
func isTable(text []byte) bool { return len(described.Read(text).Objects) == 0 }

// only returns the pod that the text is about: the only one that commands name, or else the only one of its tables, or
// the only one there that is not well or restarted.
func only(pods []command, rows []described.Row) (pod, namespace string) {
	for _, c := range pods {
		if pod != "" && c.pod != pod {
			return "", ""
		}
		pod = c.pod
		if c.namespace != "" {
			namespace = c.namespace
		}
	}
	if pod != "" {
		return pod, namespace
	}
	if ill := slices.DeleteFunc(slices.Clone(rows), well); len(ill) > 0 {
		rows = ill
	}
	for _, r := range rows {
		if r.Name != rows[0].Name {
			return "", ""
		}
	}
	if len(rows) == 0 {
		return "", ""
	}
	return rows[0].Name, rows[0].Namespace
}

func well(r described.Row) bool {
	return r.Restarts == 0 && (r.Status == "Completed" || r.Status == "Running" && r.Ready == r.Of)
}

// pieces returns what a section is: one piece, or one for each container whose lines it has.
func (s section) pieces() []Piece {
	p := s.piece()
	if p.Form != Log && (p.Form != None || s.command.verb != "other") {
		return []Piece{p}
	}
	text := []byte(strings.Join(s.lines, "\n"))
	if streams := Streams(text); len(streams) > 0 {
		for i := range streams {
			for j := range streams[i].Lines {
				streams[i].Lines[j] += s.line - 1
			}
			streams[i].Line += s.line - 1
			streams[i].Namespace, streams[i].Cut = cmp.Or(streams[i].Namespace, s.command.namespace), s.command.cut
		}
		return streams
	}
	return []Piece{p}
}

// piece returns what a section is.
func (s section) piece() Piece {
	text := []byte(strings.Join(s.margin(), "\n") + "\n")
	p := Piece{Namespace: s.command.namespace, Pod: s.command.pod, Container: s.command.container, Of: s.command.of, Previous: s.command.previous, Cut: s.command.cut, Line: s.line, Text: text}
	if len(bytes.TrimSpace(text)) == 0 {
		return Piece{}
	}
	if of := fragmentOf(s); of != "" {
		p.Form, p.Text, p.Line = Text, s.described(of), max(p.Line-2, 0)
		return p
	}
	p.Form = s.form(text)
	switch p.Form {
	case Log:
		if s.command.verb == "" {
			p.Heading = cmp.Or(s.heading, Unheaded)
		}
	case States:
		if p.Text = states(string(text), s.command); p.Text == nil {
			p.Form = None
		}
		if p.Text == nil && isObject.Match(text) { // of {.status}
			p.Form, p.Text = Objects, text
		}
	case Text: // which has its own indents
		p.Text = []byte(strings.Join(s.lines, "\n") + "\n")
		if s.command.verb != "" { // which names the namespace
			p.Text, p.Line = append([]byte(s.command.text+"\n"), p.Text...), p.Line-1
		}
	case Objects:
		if !ofObject.Match(text) || s.command.resource == "other" && !hasKind.Match(text) {
			p.Form = None
		}
	}
	return p
}

func (s section) form(text []byte) Form {
	for _, row := range byCommand {
		if s.command.verb == row.verb && s.command.verb != "" && (row.resource == "" || row.resource == s.command.resource) && strings.HasPrefix(s.command.output, row.output) {
			return row.form
		}
	}
	for _, row := range byContent {
		if row.is(text, s.heading) && !(row.form == Log && (s.command.verb != "" || s.whole)) {
			return row.form
		}
	}
	return None
}

// ObjectsIn returns the part of a text that has objects: from the first line of one on, up to the end of a block of Markdown.
func ObjectsIn(text []byte) []byte {
	at := firstObject.FindIndex(text)
	if at == nil {
		return nil
	}
	text = text[at[0]:]
	if end := endOfBlock.FindIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

var (
	firstObject = regexp.MustCompile(`(?m)^(?:apiVersion: v1[ \t]*\r?\n(?:kind|items|metadata):|kind: (?:Pod|List)[ \t]*\r?$|(?:init)?[cC]ontainerStatuses:[ \t]*\r?$)`)
	endOfBlock  = regexp.MustCompile("(?m)^(?:```|~~~)")
)
