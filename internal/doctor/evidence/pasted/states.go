package pasted

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of what templates print.
const (
	mostStates = 200 // containers
	mostFields = 40  // fields of a template
)

// A status is the status of a container, by the names of its fields.
type status map[string]any

// set sets a field, as lastState.terminated.exitCode, to a value as templates print it.
func (s status) set(path, text string) {
	if text = strings.TrimSpace(text); text == "" || text == "<none>" || text == "<no value>" {
		return
	}
	keys := strings.Split(path, ".")
	in := map[string]any(s)
	for _, key := range keys[:len(keys)-1] {
		next, is := in[key].(map[string]any)
		if !is {
			next = map[string]any{}
			in[key] = next
		}
		in = next
	}
	if v := valueOf(keys[len(keys)-1], text); v != nil {
		in[keys[len(keys)-1]] = v
	}
}

// valueOf returns a value as JSON has it; nil: it is not one of the field.
func valueOf(key, text string) any {
	switch key {
	case "restartCount", "exitCode", "signal":
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return n
		}
		return nil
	case "ready", "started":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
		return nil
	case "state", "lastState", "running", "waiting", "terminated":
		if v, rest := tree(text); v != nil && strings.TrimSpace(rest) == "" {
			return v
		}
		return nil
	}
	return text
}

// tree reads an object at the beginning of a text, in JSON or as Go prints a map, and returns what comes after it. It
// returns nil if there is none.
func tree(text string) (map[string]any, string) {
	if strings.HasPrefix(text, "{") {
		d := json.NewDecoder(strings.NewReader(text))
		var v map[string]any
		if d.Decode(&v) != nil || v == nil {
			return nil, text
		}
		return v, text[d.InputOffset():]
	}
	return goMap(text, 0)
}

// key matches the names of the fields of a container's state, in a map that Go prints: values in it may have spaces.
var key = regexp.MustCompile(`(?:^| )(containerID|exitCode|finishedAt|message|reason|signal|startedAt|running|waiting|terminated):`)

func goMap(text string, depth int) (map[string]any, string) {
	rest, is := strings.CutPrefix(text, "map[")
	if !is || depth > 3 {
		return nil, text
	}
	out := map[string]any{}
	for {
		m := key.FindStringSubmatchIndex(rest)
		if m == nil || m[0] != 0 {
			rest, is = strings.CutPrefix(rest, "]")
			if !is {
				return nil, text
			}
			return out, rest
		}
		name := rest[m[2]:m[3]]
		rest = rest[m[1]:]
		if strings.HasPrefix(rest, "map[") {
			var v map[string]any
			if v, rest = goMap(rest, depth+1); v == nil {
				return nil, text
			}
			out[name] = v
			continue
		}
		end := endOf(rest)
		if end < 0 {
			return nil, text
		}
		if v := valueOf(name, rest[:end]); v != nil {
			out[name] = v
		}
		rest = rest[end:]
	}
}

// endOf returns where a value of a map that Go printed ends: before the next key, or the bracket that closes the map.
func endOf(text string) int {
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			open++
		case ']':
			if open--; open < 0 {
				return i
			}
		case ' ':
			if m := key.FindStringIndex(text[i:min(len(text), i+20)]); open == 0 && m != nil && m[0] == 0 {
				return i
			}
		}
	}
	return -1
}

var (
	stateLine = regexp.MustCompile(`(?m)^[ \t>]*["']?([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)["']?(?:[ \t:=,|]+(?:[A-Za-z]+[=:][^ \t\n\[{]+|\d+|true|false))*[ \t:=,|]+(?:[A-Za-z]+[=:][ \t]?)?(?:map\[\]|\{\}|map\[(?:running|waiting|terminated):map\[|\{"(?:running|waiting|terminated)":[ ]?\{)`)
	restarts  = regexp.MustCompile(`(?i)\brestart\w*[=: \t]+(\d+)`)
	ready     = regexp.MustCompile(`(?i)\bready[=: \t]+(true|false)\b`)
	number    = regexp.MustCompile(`(?:^|[\s,=])(\d{1,6})(?:[\s,]|$)`)
)

func mayBeStates(head []byte) bool { return stateLine.Match(head) }

// states returns a part of a pod with the statuses that a template printed, as JSON; nil: there are none.
func states(text string, c command) []byte {
	var all []status
	pod := ""
	for _, read := range []func(string, command) ([]status, string){byTemplate, byColumns, byLine} {
		if all, pod = read(text, c); len(all) > 0 {
			break
		}
	}
	if len(all) == 0 || !slices.ContainsFunc(all, func(s status) bool {
		return s["state"] != nil || s["lastState"] != nil || s["restartCount"] != nil
	}) {
		return nil
	}
	for _, s := range all {
		if state, _ := s["state"].(map[string]any); s["ready"] == nil && state["running"] != nil {
			s["ready"] = true // unless it is said, a container is not one that is not ready
		}
	}
	whole := map[string]any{"status": map[string]any{"containerStatuses": all}}
	if pod != "" {
		whole["metadata"] = map[string]any{"name": pod, "namespace": c.namespace}
	}
	out, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	return append(out, '\n')
}

// byLine reads NAME VALUES, one container a line: the state, and then the last state, unless a word before one says which
// it is.
func byLine(text string, _ command) (all []status, _ string) {
	for line := range strings.Lines(text) {
		m := stateLine.FindStringSubmatch(line)
		if m == nil {
			if strings.TrimSpace(line) != "" && len(all) == 0 {
				return nil, ""
			}
			continue
		}
		s := ofLine(line, m[1])
		if s["state"] != nil || s["lastState"] != nil {
			if all = append(all, s); len(all) == mostStates {
				break
			}
		}
	}
	return all, ""
}

// ofLine reads the status of a container from its line.
func ofLine(line, name string) status {
	s, rest := status{"name": name}, line
	outside := ""
	for len(rest) > 0 {
		i := strings.Index(rest, "map[")
		if j := strings.IndexByte(rest, '{'); i < 0 || j >= 0 && j < i {
			i = j
		}
		if i < 0 {
			break
		}
		v, after := tree(strings.TrimRight(rest[i:], "\r\n"))
		if v == nil {
			break
		}
		label := strings.ToLower(rest[:i])
		outside += rest[:i] + " "
		field := "state"
		if strings.Contains(label, "last") || !strings.Contains(label, "state") && s["state"] != nil {
			field = "lastState"
		}
		s[field], rest = v, after
	}
	outside = strings.TrimPrefix(strings.TrimLeft(outside+rest, " \t>\"'"), name)
	for field, p := range map[string]*regexp.Regexp{"restartCount": restarts, "ready": ready} {
		if m := p.FindStringSubmatch(outside); m != nil {
			s.set(field, m[1])
		}
	}
	if m := number.FindAllStringSubmatch(outside, 2); s["restartCount"] == nil && len(m) == 1 {
		s.set("restartCount", m[0][1])
	}
	return s
}

var (
	action = regexp.MustCompile(`\{\{?-?[ ]*("(?:[^"\\]|\\.)*"|[^{}"]*)[ ]*-?\}?\}`)
	field  = regexp.MustCompile(`^\.([A-Za-z]+(?:\.[A-Za-z]+)*)$`)
	column = regexp.MustCompile(`^\.?(?:items\[\*\]\.)?status\.containerStatuses\[\*\]\.([A-Za-z]+(?:\.[A-Za-z]+)*)$`)
)

// byTemplate reads what a template printed that goes over the statuses, by what it has between and around their fields.
func byTemplate(text string, c command) (all []status, _ string) {
	_, template, has := strings.Cut(c.output, "=")
	if !has || !strings.Contains(template, "range") || !strings.Contains(template, "ontainerStatuses") {
		return nil, ""
	}
	template = strings.ReplaceAll(template, `\"`, `"`)
	template = template[strings.Index(template, "ontainerStatuses"):]
	begin := strings.IndexByte(template, '}')
	end := strings.LastIndex(template, "end")
	if begin < 0 || end < begin {
		return nil, ""
	}
	template = strings.TrimLeft(template[begin:end], "}")
	pattern, fields, at := "^", []string{}, 0
	literal := func(s string) {
		s = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(s)
		pattern += regexp.QuoteMeta(s)
	}
	for _, m := range action.FindAllStringSubmatchIndex(template, mostFields) {
		literal(template[at:m[0]])
		at = m[1]
		inner := strings.TrimSpace(template[m[2]:m[3]])
		switch f := field.FindStringSubmatch(inner); {
		case strings.HasPrefix(inner, `"`):
			literal(strings.Trim(inner, `"`))
		case f != nil:
			fields = append(fields, f[1])
			pattern += `(.*?)`
		default:
			return nil, ""
		}
	}
	if !slices.Contains(fields, "name") {
		return nil, ""
	}
	line, err := regexp.Compile(strings.TrimRight(pattern, "\n\t ") + `[ \t]*$`)
	if err != nil {
		return nil, ""
	}
	for one := range strings.Lines(text) {
		m := line.FindStringSubmatch(strings.ReplaceAll(strings.TrimRight(one, "\r\n"), "<no value>", "<none>"))
		if m == nil || len(all) == mostStates {
			continue
		}
		s := status{}
		for i, f := range fields {
			s.set(f, m[i+1])
		}
		if name, _ := s["name"].(string); podName.MatchString(name) {
			all = append(all, s)
		}
	}
	return all, ""
}

var gap = regexp.MustCompile(`[ \t]{2,}|\t`)

// byColumns reads the row of custom columns of a pod. A cell has the values of all containers; one that has more or fewer
// of them than there are names is not read.
func byColumns(text string, c command) (all []status, pod string) {
	format, columns, has := strings.Cut(c.output, "=")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !has || format != "custom-columns" || len(lines) != 2 {
		return nil, ""
	}
	specs, cells := strings.Split(columns, ","), gap.Split(strings.TrimSpace(lines[1]), -1)
	if len(cells) != len(specs) || len(specs) > mostFields {
		return nil, ""
	}
	values := map[string][]string{}
	for i, spec := range specs {
		_, path, _ := strings.Cut(spec, ":")
		if strings.HasSuffix(path, "metadata.name") {
			pod = strings.TrimSpace(cells[i])
		}
		if m := column.FindStringSubmatch(path); m != nil {
			values[m[1]] = strings.Split(cells[i], ",")
		}
	}
	if !podName.MatchString(pod) {
		pod = ""
	}
	for i, name := range values["name"] {
		s := status{}
		for path, of := range values { // in any order: each is a field of its own
			if len(of) == len(values["name"]) {
				s.set(path, of[i])
			}
		}
		if all = append(all, s); !podName.MatchString(name) || len(all) > mostStates {
			return nil, ""
		}
	}
	return all, pod
}
