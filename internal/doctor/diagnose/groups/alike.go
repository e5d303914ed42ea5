package groups

import (
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
)

// own are the parts of a sentence that differ between pods with the same cause. The order counts: an address is no list
// of numbers.
var own = []struct {
	text *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b`), "ID"},
	{regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\]|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}\b|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`), "ADDRESS"},
	{regexp.MustCompile(`(@sha256:[0-9a-f]{64})|\b[0-9a-f]{12,64}\b`), "${1}ID"},
	{regexp.MustCompile(`(-)\d{1,3}(\.)`), "${1}N${2}"}, // a pod of a StatefulSet, as a host
	{regexp.MustCompile(`\((?:ErrImagePull|ImagePullBackOff)\)`), "(PULL)"},
	{regexp.MustCompile(`0x[0-9a-fA-F]+`), "ID"},
	// A number stays in a name, a port, a status and a version; it goes as an amount, also with a unit.
	{regexp.MustCompile(`(^|[\s(\[=,/])\d+(?:[.,]\d+)?(?:ns|us|µs|ms|s|m|h|d|min|[kKMGTPE]i?B?|%)?([\s)\],;/]|$)`), "${1}N${2}"},
	{regexp.MustCompile(`(^|[\s(])(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?s\b`), "${1}N"},
}

// ends match ends of names that may be generated, of pods, of ReplicaSets, or of both. The alphabet of Kubernetes
// (k8s.io/apimachinery/pkg/util/rand) has no vowels, and no 0, 1 and 3.
var ends = regexp.MustCompile(`-(?:[bcdfghjklmnpqrstvwxz2456789]{8,10}(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?|[bcdfghjklmnpqrstvwxz2456789]{5})\b`)

// withoutEnd returns an end without its characters. One without a digit stays: it may be a word, as https is.
func withoutEnd(end string) string {
	if !strings.ContainsAny(end, "2456789") {
		return end
	}
	return "-ID"
}

// keeps are the words after which a number is no amount: it tells one cause from another.
var keeps = regexp.MustCompile(`\b(?i:code|status|signal|port|exit|errno|error|http|HTTP/[\d.]+)[ =:]+\(?\d+`)

// generated is the end of a name that a controller generated.
var generated = regexp.MustCompile(`-(?:[bcdfghjklmnpqrstvwxz2456789]{8,10}-)?(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d+)$`)

// notCreated is the beginning of a sentence about a workload whose pods cannot be created.
var notCreated = regexp.MustCompile(`^(?:only \d+ of \d+ pods|no further pod|no pod) of \S+ \S+ can be created: `)

// longest is the number of bytes of a sentence that are compared.
const longest = 4096

// shapeOf returns the sentence of a report without what is the pod's own.
func shapeOf(m member) string {
	if m.report.Verdict == result.Found && byCode[codeOf(m)] {
		return ""
	}
	text := m.report.Sentence[:min(len(m.report.Sentence), longest)]
	if m.pod == nil {
		text = notCreated.ReplaceAllString(text, "")
	}
	for _, name := range ownNames(m) {
		text = strings.ReplaceAll(text, name, "NAME")
	}
	kept := keeps.FindAllString(text, -1)
	text = keeps.ReplaceAllString(text, "\x01")
	text = ends.ReplaceAllStringFunc(text, withoutEnd)
	for _, o := range own {
		for range 2 { // two that share a separator
			text = o.text.ReplaceAllString(text, o.by)
		}
	}
	return text + "\x01" + strings.Join(kept, "\x01")
}

// ownNames returns the names that only this pod has.
func ownNames(m member) (out []string) {
	if m.pod == nil {
		return []string{m.name}
	}
	if name := m.pod.Object.Name; len(name) > 3 && generated.MatchString(name) {
		out = append(out, name)
	}
	if n := m.pod.Object.Spec.NodeName; len(n) > 3 && scopes[codeOf(m)] != node {
		out = append(out, n)
	}
	return out
}

func codeOf(m member) finding.Code {
	if len(m.report.Findings) == 0 {
		return ""
	}
	return m.report.Findings[0].Code
}

// sentence returns the words that the sentences of all members share, with "…" for the others.
func sentence(members []member) string {
	text := members[0].report.Sentence
	if members[0].pod != nil || len(members) == 1 {
		for _, m := range members[1:] {
			text = blend(text, m.report.Sentence)
		}
		return text
	}
	what, text := "no pod", notCreated.ReplaceAllString(text, "")
	for _, m := range members {
		if !strings.HasPrefix(m.report.Sentence, "no pod ") {
			what = "no further pod"
		}
		text = blend(text, notCreated.ReplaceAllString(m.report.Sentence, ""))
	}
	return what + " can be created: " + text
}

// remedy returns the words that the remedies of all members share, with "…" for the others.
func remedy(members []member) (text string) {
	for i, m := range members {
		if len(m.report.Findings) == 0 || m.report.Verdict != result.Found {
			return ""
		}
		if i == 0 {
			text = m.report.Findings[0].Remedy.Sentence
		}
		text = blend(text, m.report.Findings[0].Remedy.Sentence)
	}
	return text
}

// blend returns the words that two sentences share, and "…" for the others.
func blend(a, b string) string {
	if a == b {
		return a
	}
	x, y := strings.Split(a, " "), strings.Split(b, " ")
	if len(x) != len(y) {
		begin, end := 0, 0
		for begin < min(len(x), len(y)) && x[begin] == y[begin] {
			begin++
		}
		for end < min(len(x), len(y))-begin && x[len(x)-1-end] == y[len(y)-1-end] {
			end++
		}
		return strings.Join(slices.Concat(x[:begin], []string{"…"}, x[len(x)-end:]), " ")
	}
	for i := range x {
		if x[i] != y[i] {
			x[i] = blendWord(x[i], y[i])
		}
	}
	return strings.Join(x, " ")
}

// separators end the parts of a word that stay together: the name of an image, an address, a port.
const separators = `/:=@,;()[]"'`

// blendWord returns what two words have in common at their begin and their end, in whole parts.
func blendWord(a, b string) string {
	begin, end := 0, 0
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		if strings.IndexByte(separators, a[i]) >= 0 {
			begin = i + 1
		}
	}
	for i := 1; i <= min(len(a), len(b))-begin && a[len(a)-i] == b[len(b)-i]; i++ {
		if strings.IndexByte(separators, a[len(a)-i]) >= 0 {
			end = i
		}
	}
	return a[:begin] + "…" + a[len(a)-end:]
}
