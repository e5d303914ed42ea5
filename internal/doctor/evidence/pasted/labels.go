package pasted

import (
	"bytes"
	"regexp"
	"strings"
)

// labels has the forms in which the lines of a log name their pod and container: labels of Loki, fields of collectors, and
// what kubectl logs --prefix and stern print before each line. Groups: pod, container.
var labels = []*regexp.Regexp{
	regexp.MustCompile(`^\[pod/(?P<pod>[a-z0-9][-a-z0-9.]*)/(?P<container>[a-z0-9][-a-z0-9]*)\] `),
	regexp.MustCompile(`^(?P<pod>[a-z0-9][-a-z0-9.]*) (?P<container>[a-z0-9][-a-z0-9]*) (?:\S*\d[T ]?\d\d:\d\d|[\[{"A-Z])`),
	regexp.MustCompile(`\{[^{}]*\bcontainer(?:_name)?="(?P<container>[a-z0-9][-a-z0-9]*)"[^{}]*\}`),
	regexp.MustCompile(`"(?:container|container_name)":[ ]?"(?P<container>[a-z0-9][-a-z0-9]*)"`),
	regexp.MustCompile(`(?:^|[ ,])(?:container|container_name)="?(?P<container>[a-z0-9][-a-z0-9]*)"?(?:[ ,]|$)`),
}

var (
	podLabel  = regexp.MustCompile(`(?:\bpod(?:_name)?=|"(?:pod|pod_name)":[ ]?)"?([a-z0-9][-a-z0-9.]*)`)
	defaulted = regexp.MustCompile(`^Defaulted container "([a-z0-9][-a-z0-9]*)" out of: `) // kubectl, before a log
)

// sampled is the number of lines that must agree.
const sampled = 50

// Labelled returns the container, and perhaps the pod, that every line at the beginning of a log names; false: they do not
// all name the same.
func Labelled(head []byte) (pod, container string, ok bool) {
	if m := defaulted.FindSubmatch(head); m != nil {
		return "", string(m[1]), true
	}
	for _, form := range labels {
		if pod, container, ok = labelled(head, form); ok {
			return pod, container, true
		}
	}
	return "", "", false
}

func labelled(head []byte, form *regexp.Regexp) (pod, container string, ok bool) {
	n := 0
	for line := range bytes.Lines(head) {
		text := strings.TrimRight(string(line), "\r\n")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if n++; n > sampled {
			break
		}
		m := form.FindStringSubmatch(text)
		if m == nil {
			return "", "", false
		}
		p := ""
		if i := form.SubexpIndex("pod"); i >= 0 {
			p = m[i]
		} else if m := podLabel.FindStringSubmatch(text); m != nil {
			p = m[1]
		}
		c := m[form.SubexpIndex("container")]
		if n > 1 && (c != container || p != pod) {
			return "", "", false
		}
		pod, container = p, c
	}
	return pod, container, n > 0
}
