package witness

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

var (
	// listensBy matches a key, or a directive, of a setting of where a program listens; callsBy one of where it calls.
	listensBy = regexp.MustCompile(`(?i)^[-\s"'{]*(?:[\w.-]*listen\w*|[\w.-]*bind\w*|entry_?points?|frontends?|receivers|admin|server[.]port|port)\b`)
	callsBy   = regexp.MustCompile(`(?i)^[-\s"'{]*(?:[\w.-]*cluster\w*|[\w.-]*upstream\w*|[\w.-]*backend\w*|[\w.-]*endpoints?|[\w.-]*target\w*|exporters?|servers?\s+[\w.\[]|proxy_pass|remote\w*)\b`)
	docName   = regexp.MustCompile(`^\s{0,4}name:\s*["']?([a-z0-9][-a-z0-9.]*)`)
	keyOf     = regexp.MustCompile(`^\s*["']?([\w.-]+\.[\w-]+)["']?:\s*[|>"']`)
)

// SetToListen returns the container of the pod that a configuration beside it has listen on a port, and the line; nil: there
// is none, or several may be meant. The caller of the port is none.
func (r *Record) SetToListen(port uint16, caller string) (*evidence.Container, evidence.Quote) {
	if port == 0 {
		return nil, evidence.Quote{}
	}
	for _, t := range r.texts {
		for i, line := range t.lines {
			if t.secret || len(line) > 1000 || !slices.Contains(words(strings.ReplaceAll(line, ".", " ")), portOf(port)) || strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			of, listens := t.pathOf(i)
			if !listens {
				continue
			}
			if c := r.containerOf(of, caller); c != nil {
				return c, t.quote(i+1, r.secrets)
			}
		}
	}
	return nil, evidence.Quote{}
}

// pathOf returns the names to which a line of a configuration belongs: of its file, of the object and of its key. listens:
// the innermost setting that the line is a part of says that a program listens.
func (t *text) pathOf(at int) (names []string, listens bool) {
	names = []string{path.Base(t.from.File)}
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " \t-")) }
	depth, decided := indent(t.lines[at])+1, false
	for i := at; i >= 0; i-- {
		line := t.lines[i]
		if strings.HasPrefix(line, "---") {
			break
		}
		if m := docName.FindStringSubmatch(line); m != nil {
			names = append(names, m[1])
		}
		if strings.TrimSpace(line) == "" || indent(line) >= depth {
			continue
		}
		depth = indent(line)
		if m := keyOf.FindStringSubmatch(line); m != nil {
			names = append(names, m[1])
		}
		if !decided && callsBy.MatchString(line) {
			decided = true
		} else if !decided && listensBy.MatchString(line) {
			decided, listens = true, true
		}
	}
	return names, listens
}

// containerOf returns the only container to which a configuration belongs: one that mounts the object, that has the file among
// its arguments, or whose name, or image, is a part of the names. nil: none is, or several are.
func (r *Record) containerOf(names []string, caller string) *evidence.Container {
	for _, belongs := range []func(*corev1.Container) bool{
		func(c *corev1.Container) bool { return r.mounts(c, names) },
		func(c *corev1.Container) bool {
			args := strings.Join(append(slices.Clone(c.Command), c.Args...), " ")
			return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, ".") && strings.Contains(args, n) })
		},
		func(c *corev1.Container) bool {
			return slices.ContainsFunc(names, func(n string) bool {
				parts := strings.FieldsFunc(n, func(r rune) bool { return r == '-' || r == '.' || r == '_' })
				return slices.Contains(names, c.Name) || slices.Contains(parts, c.Name) || slices.Contains(parts, podspec.ImageName(c.Image))
			})
		},
	} {
		var found []*evidence.Container
		for _, c := range r.pod.Containers {
			if spec := r.pod.Spec(c.Name); spec != nil && c.Name != caller && belongs(spec) {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			if len(found) == 1 {
				return found[0]
			}
			return nil
		}
	}
	return nil
}

// mounts reports whether a container mounts a ConfigMap with one of some names.
func (r *Record) mounts(c *corev1.Container, names []string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.ContainsFunc(r.pod.Object.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == m.Name && v.ConfigMap != nil && slices.Contains(names, v.ConfigMap.Name)
		})
	})
}

// missingKey matches what the kubelet says of a key that an object does not have. Source: makeEnvironmentVariables in
// pkg/kubelet/kubelet_pods.go.
var missingKey = regexp.MustCompile(`couldn't find key (\S+) in (?:ConfigMap|Secret) (?:\S+/)?(\S+)`)

// NamesKey adds to the finding about a key that an object lacks the key that it has instead: one that differs in the case of
// letters, or in the signs between words.
func (r *Record) NamesKey(f *result.Finding, message string) {
	m := missingKey.FindStringSubmatch(message)
	if m == nil {
		return
	}
	if q, other, is := r.spelt(m[2], m[1]); is {
		f.Sentence += fmt.Sprintf("; it has %s", other)
		f.Evidence = append(f.Evidence, q)
		f.Remedy.Sentence = fmt.Sprintf("have the pod template name the key %s, or add the key %s; the kubelet tries again by itself", other, m[1])
	}
}

// spelt returns the line of a text about an object that has a key in another spelling, and false if there is none, or if the
// key itself is there.
func (r *Record) spelt(object, key string) (found evidence.Quote, other string, is bool) {
	plain := func(w string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(w))
	}
	for _, t := range r.texts {
		if !slices.ContainsFunc(t.lines, func(line string) bool { return len(line) < 1000 && slices.Contains(words(line), object) }) {
			continue
		}
		for i, line := range t.lines {
			for _, w := range strings.FieldsFunc(line[:min(len(line), 1000)], func(r rune) bool { return strings.ContainsRune(" \t\"',:{}[]|=", r) }) {
				if w == key {
					return evidence.Quote{}, "", false
				}
				if plain(w) == plain(key) {
					from := t.from
					from.Line = i + 1
					found, other, is = evidence.Quote{Source: from, Text: fmt.Sprintf("%s has the key %s", object, w)}, w, true
				}
			}
		}
	}
	return found, other, is
}
