package gather

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
)

// mostLoose is the largest number of logs beside a line by which containers are known.
const mostLoose = 20

// looseLogs gives a pod of which only a line of kubectl get pods is known the containers whose logs lie beside the line:
// those that the text with the line names or, if it names none, those after which the files are named.
func (b *bundle) looseLogs(text func(*evidence.Pod) []byte) {
	beside := map[*evidence.Pod][]placedLog{}
	for _, l := range b.logs {
		// One near several pods may be of any of them.
		if of := b.near(l.folder, l.name); len(of) == 1 && of[0].Row != nil && len(beside[of[0]]) < mostLoose {
			beside[of[0]] = append(beside[of[0]], l)
		}
	}
	for _, q := range b.pods {
		p := q.Pod
		if p.Row == nil {
			continue
		}
		if p.Row.Status == "Terminating" {
			p.Object.DeletionTimestamp = &metav1.Time{} // when is not known
		}
		if len(beside[p]) > 0 {
			p.Object.Spec.Containers = looseContainers(p.Object.Name, text(p), beside[p])
			p.Containers = evidence.NewPod(p.Object, p.Source).Containers
		}
	}
}

// looseContainers returns the containers that a text names of those after which logs are named or, if it names none, the
// latter.
func looseContainers(pod string, text []byte, logs []placedLog) (out []corev1.Container) {
	var all, named []string
	for _, l := range logs {
		rest := strings.TrimLeft(strings.TrimPrefix(l.base, pod), "._-") // of POD_CONTAINER
		container := cmp.Or(l.container, rest, l.base)
		switch {
		case !isLabel.MatchString(container) || len(container) > 63:
		case names(text, container):
			named = append(named, container)
		case l.container != "", path.Ext(l.Source.File) == ".log":
			all = append(all, container)
		}
	}
	if len(named) > 0 {
		all = named
	}
	slices.Sort(all)
	for _, container := range slices.Compact(all) {
		image, args := imageIn(text, container)
		out = append(out, corev1.Container{Name: container, Image: image, Args: args})
	}
	return out
}

var isLabel = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?$`)

// names reports whether a text has a name as a word of its own.
func names(text []byte, name string) bool {
	return regexp.MustCompile(`(?:^|[^-\w./])` + regexp.QuoteMeta(name) + `(?:$|[^-\w./]|[.]\s)`).Match(text)
}

// imageIn returns the image and the arguments that a text has in parentheses behind a container, if it has them.
func imageIn(text []byte, container string) (image string, args []string) {
	m := regexp.MustCompile(`(?:^|[^-\w./])` + regexp.QuoteMeta(container) + `[ \t]*\(([^()\r\n]{1,1000})\)`).FindSubmatch(text)
	if m == nil {
		return "", nil
	}
	words := strings.Fields(string(m[1]))
	if len(words) == 0 || !strings.ContainsAny(words[0], "/:") {
		return "", nil // a remark
	}
	return words[0], words[1:]
}

// notRead notes a log that is not used, also among what is missing of a pod that is known by a line alone: that pod is
// not well by its line if a log beside it is not read.
func (b *bundle) notRead(l placedLog, format string, args ...any) {
	b.unused(l.Source, format, args...)
	for _, p := range b.near(l.folder, name{}) {
		if p.Row != nil {
			b.missing = append(b.missing, placedMissing{p, evidence.Missing{Kind: evidence.FromLog, What: path.Base(l.Source.File), Why: "it is not used"}})
		}
	}
}
