// Package attribution finds the container of a log that neither a command nor a file is named after: by a heading or a name
// in other words, by what its lines say of themselves, by the form in which its program writes, and last, as the only log
// of the only container that has none.
//
// Each step is less certain than the one before it, and says why it holds. A word, a time or a name of something else in
// the log makes it mean none: a text that is of no container is still evidence beside the pod, and a wrong container would
// be a false cause.
package attribution

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/pasted"
	"outrider.dev/internal/doctor/evidence/timestamp"
	"outrider.dev/internal/doctor/evidence/why"
)

// A Log is a log, and what is known of it.
type Log struct {
	*evidence.Log
	Heading string   // of a part of a text, instead of a name
	Command bool     // a command or the path names its pod or its container
	Others  []string // names of the other pods of the evidence
}

// ofOthers reports whether a log has the name of another pod, and not that of the pod.
func (l Log) ofOthers(p *evidence.Pod, head []byte) bool {
	return !bytes.Contains(head, []byte(p.Object.Name)) && slices.ContainsFunc(l.Others, func(name string) bool {
		return name != p.Object.Name && bytes.Contains(head, []byte(name))
	})
}

// A Match is the container of a log.
type Match struct {
	Container *evidence.Container
	Run       pasted.Run
	Why       string // why it is taken as this container's log; empty: it names the container
}

// mostRead is how much of a log is read for what its lines say of themselves.
const mostRead = 16 << 10

// NamesOf returns the names after which a log of the pod may have been named.
func NamesOf(p *evidence.Pod) pasted.Pod {
	out := pasted.Pod{Name: p.Object.Name, Namespace: p.Object.Namespace}
	for _, c := range p.Containers {
		_, proxy := knownproxy.Named(c.Name)
		switch {
		case proxy:
			out.Proxies = append(out.Proxies, c.Name)
		case slices.ContainsFunc(p.Object.Spec.Containers, func(s corev1.Container) bool { return s.Name == c.Name }):
			out.Apps = append(out.Apps, c.Name)
		default:
			out.Others = append(out.Others, c.Name)
		}
	}
	return out
}

// Of returns the container of a pod that a log means by its name or heading, by its lines, or by its program; false: none.
func Of(ctx context.Context, p *evidence.Pod, l Log) (m Match, ok bool) {
	of, file := NamesOf(p), path.Base(l.Source.File)
	name, byFile := "", l.Heading == "" && !l.Command
	if l.Heading != "" {
		name, m.Run, ok = of.ByHeading(l.Heading)
	} else if byFile && l.First == 0 {
		name, m.Run, ok = of.ByFile(file)
	}
	head, err := l.Head(ctx, mostRead)
	if err != nil {
		head = nil
	}
	if !ok && byFile {
		if pod, labelled, has := pasted.Labelled(head); has && (pod == "" || pod == p.Object.Name) {
			name, m.Run, ok = labelled, pasted.RunOf(file), true
		}
	}
	program := programOf(head)
	if !ok && (byFile || l.Heading != "") && !isAside(head) {
		said := ""
		switch {
		case l.Heading != "":
			name, said, m.Run, ok = of.PartOfHeading(l.Heading)
		default:
			name, said, m.Run, ok = of.PartOfFile(file)
		}
		m.Why = fmt.Sprintf("of the names of the containers only this one has the word %s", said)
	}
	if !ok && program != nil && !isAside(head) && (l.Heading != "" || byFile && of.Neutral(file, program.words...)) {
		name, ok = program.in(p)
		m.Run, m.Why = pasted.RunOf(l.Heading), "its lines have the form of "+program.name
		if l.Heading == "" {
			m.Run = pasted.RunOf(file)
		}
	}
	m.Container = p.Container(name)
	if !ok || m.Container == nil {
		return Match{}, false
	}
	if m.Why != "" && (!mayRun(program, p, m.Container) || !within(p, head) || l.ofOthers(p, head)) {
		return Match{}, false
	}
	return m, true
}

// IsOf reports whether a log that names no container may be of a pod whose containers are not known: its program is not
// known or, by the pod's name, the pod's, and nothing in it or above it is of another time, another pod or what the pod
// depends on.
func IsOf(ctx context.Context, p *evidence.Pod, l Log) bool {
	head, err := l.Head(ctx, mostRead)
	program := programOf(head)
	known := program == nil || program.anywhere && (l.Command || hasWord(p.Object.Name, program.words))
	if pod, _, has := pasted.Labelled(head); has && pod != "" && pod != p.Object.Name {
		return false
	}
	return err == nil && known && fits(p, l, head) && !elsewhere.MatchString(l.Heading) &&
		(l.Heading != "" || l.Command || NamesOf(p).Neutral(path.Base(l.Source.File)))
}

// fits reports whether a log is one, and nothing in it shows that it is not the pod's.
func fits(p *evidence.Pod, l Log, head []byte) bool {
	program := l.Command || !pasted.IsTable(head) && (!pasted.IsProse(head) || l.Heading != "" && why.Tells(bytes.TrimSpace(head)))
	return program && !isAside(head) && within(p, head) && !l.ofOthers(p, head) && len(bytes.TrimSpace(head)) > 0
}

// Left returns the only container of a pod that may have a log and has none, for the only log that is left.
func Left(ctx context.Context, p *evidence.Pod, l Log) (Match, bool) {
	head, err := l.Head(ctx, mostRead)
	if err != nil || l.Command || !fits(p, l, head) {
		return Match{}, false
	}
	run := pasted.RunOf(l.Heading)
	if l.Heading == "" {
		if !NamesOf(p).Neutral(path.Base(l.Source.File)) {
			return Match{}, false
		}
		run = pasted.RunOf(path.Base(l.Source.File))
	} else if elsewhere.MatchString(l.Heading) || slices.ContainsFunc(p.Containers, func(c *evidence.Container) bool { return strings.Contains(l.Heading, c.Name) }) {
		return Match{}, false
	}
	program := programOf(head)
	var left []*evidence.Container
	for _, c := range p.Containers {
		ran := len(c.Runs) > 0 || c.Restarts > 0 || c.Restarts < 0
		injected := machinery.MatchString(c.Name)
		if _, proxy := knownproxy.Named(c.Name); proxy {
			injected = true
		}
		if len(c.Logs) == 0 && ran && (program == nil && !injected || program != nil && program.runs(p, c)) {
			left = append(left, c)
		}
	}
	if len(left) != 1 || program != nil && !program.anywhere && !program.runs(p, left[0]) {
		return Match{}, false
	}
	return Match{left[0], run, "it is the only log that is left, and this the only container without one"}, true
}

// machinery matches the init containers of meshes, whose logs have forms of their own.
var machinery = regexp.MustCompile(`^(?:istio-init|istio-validation|linkerd-init|linkerd-network-validator|kuma-init|consul-connect-inject-init|outrider-init)$`)

// elsewhere has the words of headings of logs of what the pod depends on, or runs on.
var elsewhere = regexp.MustCompile(`(?i)\b(?:db|dba|database|broker|server|servers|node|nodes|kubelet|journal|dmesg|kernel|dns|coredns|istiod|control[ -]plane|controller|operator|ingress|gateway|client|balancer|lb|upstream|downstream|redis|postgres|postgresql|mysql|mongo|kafka|rabbitmq|rabbit|vault|cluster|ci|pipeline|helm|argo|terraform)\b`)

// isAside reports whether the comments at the beginning of a log say that it is of something else.
func isAside(head []byte) bool {
	for line := range bytes.Lines(head) {
		if !comment.Match(line) {
			return false
		}
		if pasted.IsAside(string(line)) || otherCluster.Match(line) {
			return true
		}
	}
	return false
}

var (
	comment      = regexp.MustCompile(`^[ \t]*(?:#|//|--|;)|^[ \t\r]*\n?$`)
	otherCluster = regexp.MustCompile(`(?i)\bcluster [a-z0-9]+\b`)
)

// mayRun reports whether a container may run a program: false if another container of the pod does.
func mayRun(of *program, p *evidence.Pod, c *evidence.Container) bool {
	if of == nil || of.runs(p, c) {
		return true
	}
	_, another := of.in(p)
	return !another && of.anywhere
}

// slack is the time by which the clock of a program may differ from the node's.
const slack = 5 * time.Minute

// within reports whether the times of a log, if they have a zone, lie in the life of the pod as far as it is known.
func within(p *evidence.Pod, head []byte) bool {
	first, last := zoned(head)
	if first.IsZero() {
		return true
	}
	begin := p.Object.CreationTimestamp.Time
	if begin.IsZero() && p.Object.Status.StartTime != nil {
		begin = p.Object.Status.StartTime.Time
	}
	if !begin.IsZero() && last.Before(begin.Add(-slack)) {
		return false
	}
	return !p.Taken.Known() || !first.After(p.Taken.At.Add(slack))
}

// zoned returns the first and the last time with a zone that lines begin with; zero: there is none.
func zoned(head []byte) (first, last time.Time) {
	for line := range bytes.Lines(head) {
		s, has := timestamp.Find(line)
		if !has || !s.Zoned || s.NoYear || s.NoDate || s.Form == timestamp.Uptime {
			continue
		}
		if last = s.Instant(0, time.Time{}); first.IsZero() {
			first = last
		}
	}
	return first, last
}

// RunOf returns the number of the run of a container whose log this is, if its name does not say so; -1: the log does not
// show it. Its times lie in one run alone; or it has none, and its end says why a program ended, while the container runs.
func RunOf(ctx context.Context, c *evidence.Container, l *evidence.Log) int {
	head, err := l.Head(ctx, mostRead)
	if err != nil {
		return -1
	}
	first, last, any := spans(head)
	found := -1
	if any {
		for _, r := range c.Runs {
			if !r.Started.Known() || first.Before(r.Started.At.Add(-2*time.Second)) || r.Finished.Known() && last.After(r.Finished.Latest().Add(2*time.Second)) {
				continue
			}
			if found >= 0 {
				return -1
			}
			found = r.Number
		}
		return found
	}
	now := c.Last()
	if c.Waiting != nil || now == nil || !now.Running || len(c.Runs) < 2 {
		return -1
	}
	before := c.Runs[len(c.Runs)-2]
	if before.Exit == nil || *before.Exit == 0 {
		return -1
	}
	hits, end, err := l.Scan(ctx, []evidence.Pattern{evidence.Ending})
	if err != nil {
		return -1
	}
	if _, says := l.Told(c.Name, hits, end, false); !says {
		return -1
	}
	return before.Number
}

// spans returns the first and the last time of a log, those without a zone as UTC; false: it has none with a date.
func spans(head []byte) (first, last time.Time, any bool) {
	if first, last = zoned(head); !first.IsZero() {
		return first, last, true
	}
	for line := range bytes.Lines(head) {
		s, has := timestamp.Find(line)
		if !has || s.NoDate || s.NoYear || s.Form == timestamp.Uptime {
			continue
		}
		if last = s.Instant(0, time.Time{}); !any {
			first, any = last, true
		}
	}
	return first, last, any
}

// ProgramIn returns the container by whose usual name the program of a log is known; empty: it is not.
func ProgramIn(head []byte) string {
	if of := programOf(head); of != nil && !of.anywhere {
		return of.containers[0]
	}
	return ""
}

func hasWord(text string, words []string) bool {
	said := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(said, w) })
}
