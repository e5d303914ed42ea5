package pasted

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// podLabels has the forms in which the lines of logs, of one container or of several, name their pods.
var podLabels = []*regexp.Regexp{
	regexp.MustCompile(`^\[pod/([a-z0-9][-a-z0-9.]*)/[a-z0-9][-a-z0-9]*\]`),
	regexp.MustCompile(`^[+-]? ?([a-z0-9][-a-z0-9.]*-[-a-z0-9.]+) (?:› )?[a-z0-9][-a-z0-9]*(?: |$)`),
	podLabel,
}

// PodsOf returns the pods that the lines at the beginning of a log name, if most of them name one.
func PodsOf(head []byte) []string {
	for _, form := range podLabels {
		var out []string
		n, named := 0, 0
		for line := range bytes.Lines(head) {
			text := strings.TrimSpace(string(line[:min(len(line), longest)]))
			if text == "" {
				continue
			}
			n++
			if m := form.FindStringSubmatch(text); m != nil {
				named++
				if !slices.Contains(out, m[1]) {
					out = append(out, m[1])
				}
			}
		}
		if 2*named > n {
			return out
		}
	}
	return nil
}

var (
	// query matches the labels that select the logs of one pod, as Loki and its relatives have them.
	query       = regexp.MustCompile(`\{[^{}]*\bpod(?:_name)?="([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)"[^{}]*\}`)
	inQuery     = regexp.MustCompile(`\b(?:namespace|kubernetes_namespace_name)="([a-z0-9][-a-z0-9]*)"`)
	queriedLine = regexp.MustCompile(`^(\[?\d{4}-\d\d-\d\d[T ]\S*\d:\d\d\S*)[ \t]+([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)[ \t]+(\S.*)$`)
	levelWord   = regexp.MustCompile(`^(?:trace|debug|info|notice|warn|warning|error|err|fatal|panic|critical|stdout|stderr)$`)
)

// mostOfPod is the number of containers of which the log of one pod has lines.
const mostOfPod = 20

// queried returns the logs of a pod that a query above the lines names, where each line has a time, its container and what
// that wrote. It returns none if the text is not of that form.
func queried(text []byte) (out []Piece) {
	at := map[string]int{}
	pod, namespace, number, others := "", "", 0, 0
	for raw := range bytes.Lines(text) {
		number++
		line := strings.TrimRight(string(raw[:min(len(raw), longest)]), "\r\n")
		if pod == "" {
			if m := query.FindStringSubmatch(line); m != nil {
				pod = m[1]
				if in := inQuery.FindStringSubmatch(line); in != nil {
					namespace = in[1]
				}
			} else if number == 5 {
				return nil
			}
			continue
		}
		m := queriedLine.FindStringSubmatch(line)
		if m == nil || levelWord.MatchString(m[2]) {
			if strings.TrimSpace(line) != "" {
				others++
			}
			continue
		}
		i, is := at[m[2]]
		if !is {
			if len(out) == mostOfPod {
				return nil
			}
			i = len(out)
			at[m[2]] = i
			out = append(out, Piece{Form: Log, Namespace: namespace, Pod: pod, Container: m[2], Line: number})
		}
		out[i].Text = append(out[i].Text, m[1]+" "+m[3]+"\n"...)
		out[i].Lines = append(out[i].Lines, number)
	}
	lines := 0
	for _, p := range out {
		lines += len(p.Lines)
	}
	if lines < 3*len(out) && len(out) > 2 || 3*others > lines { // then the second word is none of few names
		return nil
	}
	return out
}
