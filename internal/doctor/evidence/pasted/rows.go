package pasted

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/evidence/described"
)

// mayBeRows reports whether a text that package described does not know by its heads has lines of tables nevertheless, or
// states that a person wrote.
func mayBeRows(head []byte) bool {
	if typedStatuses.Match(head) && ObjectsIn(head) == nil {
		return true
	}
	if described.Is(head) {
		return false
	}
	for line := range bytes.Lines(head) {
		if isRow(trimmed(line)) {
			return true
		}
	}
	states, _ := containersInWords(head)
	return len(states)+len(inWords(head, nil)) > 0
}

func trimmed(line []byte) string {
	return strings.TrimRight(string(line[:min(len(line), longest)]), " \t\r\n")
}

// isRow reports whether a line is one of a table of pods or events, by its form.
func isRow(line string) bool {
	if _, is := described.RowOf(line); is {
		return true
	}
	_, is := described.EventLine(line)
	return is
}

// loose returns pieces of what stands between the sentences, outside of the other pieces: lines of tables, statuses, and
// states in words.
func loose(text []byte, others []Piece) (out []Piece) {
	read := map[int]bool{}
	objects := false
	for _, p := range others {
		objects = objects || p.Form == Objects || p.Form == States || p.Form == Text && !isTable(p.Text)
		for i := range bytes.Count(p.Text, []byte("\n")) {
			read[p.Line+i] = read[p.Line+i] || p.Form != Log
		}
	}
	var now Piece
	var in command
	end := func() {
		if now.Form == Text && !allHeads(now.Text) {
			if in.namespace != "" && now.Line > 1 {
				now.Text, now.Line = append([]byte("kubectl get pods -n "+in.namespace+"\n"), now.Text...), now.Line-1
			}
			out = append(out, now)
		}
		now = Piece{}
	}
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		line := trimmed(raw)
		if c, is := commandOf(line); is {
			end()
			in = c
			continue
		}
		if read[number] || !isRow(line) && !described.IsHead(line) {
			end()
			continue
		}
		if now.Form == None {
			now = Piece{Form: Text, Line: number, Namespace: in.namespace}
		}
		now.Text = append(append(now.Text, line...), '\n')
	}
	end()
	if p := typedIn(text); p.Form != None && !objects {
		return append(out, p)
	}
	if rows := inWords(text, read); len(rows) > 0 && len(out) == 0 && !slices.ContainsFunc(others, func(p Piece) bool { return p.Form == Text }) {
		out = append(out, Piece{Form: Text, Line: rows[0].Line, Text: []byte("\n"), Rows: rows})
	}
	if all, line := containersInWords(text); len(all) > 0 && !objects {
		if whole, err := json.Marshal(map[string]any{"status": map[string]any{"containerStatuses": all}}); err == nil {
			out = append(out, Piece{Form: States, Words: true, Line: line, Text: append(whole, '\n')})
		}
	}
	return out
}

func allHeads(text []byte) bool {
	for line := range bytes.Lines(text) {
		if !described.IsHead(trimmed(line)) {
			return false
		}
	}
	return true
}

var (
	typedStatuses = regexp.MustCompile(`(?m)^[ \t]*(?:init)?[cC]ontainerStatuses:[ \t]*\r?$`)
	// twice matches a key whose value has a key, in one line, as no YAML has it and people type it.
	twice = regexp.MustCompile(`^([ \t-]*(?:state|lastState):)[ \t]+((?:running|waiting|terminated):)[ \t]*(.*)$`)
	pair  = regexp.MustCompile(`^[ \t]*(?:- )?[A-Za-z]+:(?:[ \t]|$)`)
)

// typedIn returns the statuses of containers that a person typed: the lines from the field on that are below it, with keys that
// stand in one line put below each other.
func typedIn(text []byte) Piece {
	at := typedStatuses.FindIndex(text)
	if at == nil {
		return Piece{}
	}
	p := Piece{Form: Objects, Line: bytes.Count(text[:at[0]], []byte("\n")) + 1}
	indent := -1
	for raw := range bytes.Lines(text[at[0]:]) {
		line := strings.ReplaceAll(trimmed(raw), "\t", "  ")
		has := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case indent < 0:
			indent = has
		case line != "" && (has < indent || has == indent && !strings.HasPrefix(line[has:], "- ")) || line != "" && !pair.MatchString(line):
			return p
		}
		line = line[min(indent, len(line)):]
		if m := twice.FindStringSubmatch(line); m != nil {
			below := strings.Repeat(" ", len(m[1])-len(strings.TrimLeft(m[1], " -"))+2)
			line = m[1] + "\n" + below + m[2]
			if m[3] != "" {
				line += "\n" + below + "  " + m[3]
			}
			if m[3] != "" && !pair.MatchString(m[3]) {
				line = m[1] + "\n" + below + m[2] + " {}"
			}
		}
		p.Text = append(append(p.Text, line...), '\n')
	}
	return p
}

// statusWords is the STATUS of a pod in the words of a person, who may write such words for other things too.
const statusWords = `(?:Init:(?:\d+/\d+|[A-Z][A-Za-z]+)|CrashLoopBackOff|Error|ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|CreateContainer(?:Config)?Error|RunContainerError|OOMKilled|Running|Pending|Completed|NotReady|Terminating|ContainerCreating|PodInitializing|Evicted|Unknown)`

var (
	wordsOf   = regexp.MustCompile(`(?:^|[\s,(:"'=])(\d{1,2})/(\d{1,2})[ ,;:(]+(` + statusWords + `)\b`)
	nameIn    = regexp.MustCompile(`(?:^|[\s("'/])([a-z0-9](?:[-a-z0-9]*[a-z0-9])?-[a-z0-9]{1,10})(?:[\s,:"')]|$)`)
	afterPod  = regexp.MustCompile(`\bpods?[ :/]+["']?([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?-[a-z0-9]+)`)
	timesOver = regexp.MustCompile(`(?i)\brestart(?:s|ed|Count)?[ :=]+(?:is |are )?(\d{1,5})\b|\b(\d{1,5}) restarts?\b`)
)

// inWords returns pods whose state a person wrote between the sentences, as "web-0 is 1/2 CrashLoopBackOff, restarts 7". One
// of which the line has no name has none.
func inWords(text []byte, read map[int]bool) (out []described.Row) {
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		line := trimmed(raw)
		m := wordsOf.FindStringSubmatchIndex(line)
		if m == nil || read[number] || len(out) == mostPieces {
			continue
		}
		r := described.Row{Status: line[m[6]:m[7]], Line: number}
		r.Ready, _ = strconv.Atoi(line[m[2]:m[3]])
		r.Of, _ = strconv.Atoi(line[m[4]:m[5]])
		if n := afterPod.FindStringSubmatch(line); n != nil {
			r.Name = n[1]
		} else if n := nameIn.FindAllStringSubmatch(line[:m[2]], -1); len(n) > 0 {
			r.Name = n[len(n)-1][1]
		}
		if n := timesOver.FindStringSubmatch(line); n != nil {
			r.Restarts, _ = strconv.Atoi(n[1] + n[2])
		}
		if r.Ready <= r.Of && r.Of > 0 {
			out = append(out, r)
		}
	}
	return out
}

var (
	inState = regexp.MustCompile(`(?:^|[\s,;(])([a-z0-9](?:[-a-z0-9]*[a-z0-9])?):[ \t]+(Running|Waiting|Terminated)\b(?:[ ]?[/:,(][ ]?([A-Z][A-Za-z]+))?(?:[ ,;()]*\bexit(?:ed|Code)?(?: code| with)?[:= ]+(\d{1,3})\b)?`)
	noName  = regexp.MustCompile(`^(?:state|status|phase|last|lastState|pod|container|now|then|app|it|is)$`)
)

// containersInWords returns containers whose states a person wrote, as "web: Terminated/Error exit 1", and the line of the
// first. One that runs is one only beside others, since a sentence may say so of anything.
func containersInWords(text []byte) (all []status, line int) {
	number, ended := 0, false
	for raw := range bytes.Lines(text) {
		number++
		for _, m := range inState.FindAllStringSubmatch(trimmed(raw), mostFields) {
			s := status{"name": m[1]}
			known := slices.ContainsFunc(all, func(o status) bool { return o["name"] == m[1] })
			if noName.MatchString(m[1]) || known || len(all) == mostStates {
				continue
			}
			switch m[2] {
			case "Running":
				s["state"], s["ready"] = map[string]any{"running": map[string]any{}}, true
			case "Waiting":
				s["state"] = map[string]any{"waiting": map[string]any{"reason": m[3]}}
			case "Terminated":
				if m[4] == "" && m[3] != "Completed" {
					continue // how it ended is not said
				}
				exit, _ := strconv.Atoi(m[4])
				s["state"] = map[string]any{"terminated": map[string]any{"exitCode": exit, "reason": m[3]}}
			}
			ended = ended || m[2] != "Running"
			if all = append(all, s); len(all) == 1 {
				line = number
			}
		}
	}
	if !ended {
		return nil, 0
	}
	return all, line
}
