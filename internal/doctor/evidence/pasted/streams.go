package pasted

import (
	"bytes"
	"regexp"
	"strings"
)

// prefixes are the forms in which programs that print the logs of several containers name the pod and the container before
// each line: kubectl logs --prefix, and stern. Their groups: pod, container.
var prefixes = []*regexp.Regexp{
	regexp.MustCompile(`^\[pod/(?P<pod>[a-z0-9][-a-z0-9.]*)/(?P<container>[a-z0-9][-a-z0-9]*)\] ?`),
	regexp.MustCompile(`^(?P<pod>[a-z0-9][-a-z0-9.]*-(?:[a-z0-9]{5}|\d{1,4})) (?P<container>[a-z0-9][-a-z0-9]*)(?: │| \|)? `),
}

// opened matches the lines with which stern says that it begins or ends to follow a log.
var opened = regexp.MustCompile(`^[+-] ([a-z0-9][-a-z0-9.]*) › ([a-z0-9][-a-z0-9]*)[ \t]*$`)

// mostStreams is the number of containers whose lines one text may have.
const mostStreams = 200

// Streams returns the logs of a text in which each line names its pod and container, one for each container. It returns
// none if the text is not of that form.
func Streams(text []byte) []Piece {
	if out := queried(text); len(out) > 0 {
		return out
	}
	for _, form := range prefixes {
		if out := streams(text, form); len(out) > 0 {
			return out
		}
	}
	return nil
}

func streams(text []byte, form *regexp.Regexp) (out []Piece) {
	type key struct{ pod, container string }
	at := map[key]int{}
	number, fit, announced, last := 0, 0, false, -1
	others := 0
	for raw := range bytes.Lines(text) {
		number++
		line := strings.TrimRight(string(raw[:min(len(raw), longest)]), "\r\n")
		m := form.FindStringSubmatch(line)
		switch {
		case m != nil:
			k := key{m[1], m[2]}
			i, is := at[k]
			if !is {
				if len(out) == mostStreams {
					return nil
				}
				i = len(out)
				at[k] = i
				out = append(out, Piece{Form: Log, Pod: k.pod, Container: k.container, Line: number})
			}
			fit, last, line = fit+1, i, line[len(m[0]):]
		case opened.MatchString(line):
			announced = true
			continue
		case strings.TrimSpace(line) == "" || last < 0: // what stands before
			continue
		default: // a line goes on
			others++
		}
		p := &out[last]
		p.Text, p.Lines = append(append(p.Text, line...), '\n'), append(p.Lines, number)
	}
	if fit < 2 || others > fit/3 || !announced && !agree(out, form) {
		return nil
	}
	return out
}

// agree reports whether the texts behind the prefixes are logs, so that the first two words of their lines are names and no
// sentence.
func agree(out []Piece, form *regexp.Regexp) bool {
	if form == prefixes[0] {
		return true
	}
	logs := 0
	for _, p := range out {
		first, _, _ := bytes.Cut(p.Text, []byte("\n"))
		if machine.Match(first) || levelled.Match(first) {
			logs++
		}
	}
	return 2*logs > len(out)
}
