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
	"outrider.dev/startup"
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
			p.Object.Spec.Containers = looseContainers(p, text(p), beside[p])
			p.Containers = evidence.NewPod(p.Object, p.Source).Containers
		}
	}
}

// looseContainers returns the containers that a text names of those after which logs are named. It returns the latter if
// the text names none, or if they are no more than the line counts.
func looseContainers(p *evidence.Pod, text []byte, logs []placedLog) (out []corev1.Container) {
	var all, named []string
	for _, l := range logs {
		rest := strings.TrimLeft(strings.TrimPrefix(l.base, p.Object.Name), "._-") // of POD_CONTAINER
		container := cmp.Or(l.container, rest, l.base)
		switch {
		case !isLabel.MatchString(container) || len(container) > 63:
		case names(text, container):
			named, all = append(named, container), append(all, container)
		case l.container != "", path.Ext(l.Source.File) == ".log":
			all = append(all, container)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(named) > 0 && len(all) > p.Row.Of {
		slices.Sort(named)
		all = slices.Compact(named)
	}
	for _, container := range all {
		image, args := imageIn(text, container)
		out = append(out, corev1.Container{Name: container, Image: image, Args: args})
	}
	return out
}

// uncounted returns a new container of a pod of which a text shows a part of the containers alone, for a log that is
// named after none of them: the line of kubectl get pods counts more than are known. It returns nil if it does not.
func (b *bundle) uncounted(p *evidence.Pod, l placedLog) *evidence.Container {
	if p.Row != nil || !p.Omitted.Spec && !p.Omitted.Hooks || path.Ext(l.Source.File) != ".log" || !isLabel.MatchString(l.base) || strings.HasPrefix(p.Object.Name, l.base+"-") {
		return nil
	}
	for _, t := range b.texts {
		for _, r := range t.Pods {
			if r.Name == p.Object.Name && r.Of > len(p.Object.Spec.Containers) {
				p.Object.Spec.Containers, p.Omitted.Spec = append(p.Object.Spec.Containers, corev1.Container{Name: l.base}), true
				p.Containers = append(p.Containers, &evidence.Container{Name: l.base, Kind: startup.Plain, Restarts: -1})
				return p.Containers[len(p.Containers)-1]
			}
		}
	}
	return nil
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
	b.addBeside(l, nil)
	b.unused(l.Source, format, args...)
	for _, p := range b.near(l.folder, name{}) {
		if p.Row != nil {
			b.missing = append(b.missing, placedMissing{p, evidence.Missing{Kind: evidence.FromLog, What: path.Base(l.Source.File), Why: "it is not used"}})
		}
	}
}
