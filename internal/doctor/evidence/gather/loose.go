package gather

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/attribution"
	"outrider.dev/internal/doctor/evidence/partial"
	"outrider.dev/startup"
)

// mostLoose is the largest number of logs beside a line by which containers are known.
const mostLoose = 20

// looseLogs gives a pod of which only a line of kubectl get pods is known the containers whose logs lie beside the line:
// those that the text with the line names or, if it names none, those after which the files are named.
func (b *bundle) looseLogs(text func(*evidence.Pod) []byte) {
	b.shortNames()
	beside := map[*evidence.Pod][]*placedLog{}
	for i := range b.logs {
		l := &b.logs[i]
		// One near several pods may be of any of them, unless the events of one name its container.
		if of := b.byEvents(b.near(l.folder, l.name), *l); len(of) == 1 && of[0].Row != nil && len(beside[of[0]]) < mostLoose {
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
		began := p.Row.Restarts > 0 || !starting.MatchString(p.Row.Status) || strings.HasPrefix(p.Row.Status, "Init:")
		if len(beside[p]) > 0 && len(p.Object.Spec.Containers) == 0 && began {
			p.Object.Spec.Containers = b.withUnnamed(p, looseContainers(p, text(p), beside[p]), beside[p])
			p.Containers = evidence.NewPod(p.Object, p.Source).Containers
		}
	}
}

// shortNames completes the names of pods that headings of logs shorten to their last parts, as in "log of x7k2p".
func (b *bundle) shortNames() {
	for i := range b.logs {
		l := &b.logs[i]
		if l.heading == "" || l.pod != "" {
			continue
		}
		said := strings.FieldsFunc(l.heading, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
		of := slices.DeleteFunc(b.near(l.folder, l.name), func(p *evidence.Pod) bool {
			return !slices.ContainsFunc(said, func(w string) bool { return strings.HasSuffix(p.Object.Name, "-"+w) && isLast.MatchString(w) })
		})
		if len(of) == 1 {
			l.pod, l.namespace = of[0].Object.Name, of[0].Object.Namespace
		}
	}
}

// isLast matches the last part of a name that a controller gave to a pod, or parts that end with a number, as exec-3. Source
// of the letters: k8s.io/apimachinery/pkg/util/rand.
var isLast = regexp.MustCompile(`^(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[a-z]+-\d+)$`)

// withUnnamed returns containers of a pod with one more, of which the name is not known, if a single log is of none of
// them, and the others are proxies.
func (b *bundle) withUnnamed(p *evidence.Pod, known []corev1.Container, logs []*placedLog) []corev1.Container {
	var of []*placedLog
	for _, l := range logs {
		name := containerOf(p, l)
		named := slices.ContainsFunc(known, func(c corev1.Container) bool { return c.Name == name })
		if !named && attribution.IsOf(context.Background(), p, b.lines(l)) {
			of = append(of, l)
		}
	}
	isApp := func(c corev1.Container) bool { _, proxy := knownproxy.Named(c.Name); return !proxy }
	if len(of) != 1 || len(known) >= p.Row.Of || slices.ContainsFunc(known, isApp) {
		return known
	}
	of[0].pod, of[0].namespace, of[0].container, of[0].base = p.Object.Name, p.Object.Namespace, partial.NoContainer, ""
	return append(known, corev1.Container{Name: partial.NoContainer})
}

// containerOf returns the container that a log beside a line names, in a command, a heading, its form or the file's name;
// empty: none.
func containerOf(p *evidence.Pod, l *placedLog) string {
	if l.container != "" {
		return l.container
	}
	if m := inHeading.FindStringSubmatch(l.heading); m != nil {
		return m[1]
	}
	if proxy := partial.ProxyIn(l.heading); proxy != "" {
		return proxy
	}
	if l.heading != "" || attribution.NamesOf(p).Neutral(path.Base(l.Source.File)) { // also proxy.log, sidecar.txt
		if program := programIn(*l); program != "" {
			return program
		}
	}
	return cmp.Or(strings.TrimLeft(strings.TrimPrefix(l.base, p.Object.Name), "._-"), l.base) // of POD_CONTAINER
}

// inHeading matches the words of a heading that name a container.
var inHeading = regexp.MustCompile(`\b[Cc]ontainer:? ["'\x60]?([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)\b`)

// looseContainers returns the containers that a text names of those after which logs are named. It returns the latter if
// the text names none, or if they are no more than the line counts.
func looseContainers(p *evidence.Pod, text []byte, logs []*placedLog) (out []corev1.Container) {
	var all, named []string
	for _, l := range logs {
		container := containerOf(p, l)
		switch {
		case !partial.IsLabel.MatchString(container) || len(container) > 63:
		case partial.Names(text, container):
			named, all = append(named, container), append(all, container)
		case l.container != "", l.heading != "", path.Ext(l.Source.File) == ".log", len(logs) == p.Row.Of && !attribution.NamesOf(p).Neutral(path.Base(l.Source.File)):
			all = append(all, container)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(named) > 0 && len(all) > p.Row.Of {
		slices.Sort(named)
		all = slices.Compact(named)
	}
	for _, container := range all {
		image, args := partial.ImageIn(text, container)
		out = append(out, corev1.Container{Name: container, Image: image, Args: args})
	}
	return out
}

// programOf returns the container by whose usual name the program of a part of a text is known; empty: it is not.
func programOf(l placedLog) string {
	if l.heading == "" {
		return ""
	}
	return programIn(l)
}

// programIn is programOf for any log.
func programIn(l placedLog) string {
	head, err := l.Head(context.Background(), mostBegin)
	if err != nil {
		return ""
	}
	return attribution.ProgramIn(head)
}

// uncounted returns a new container of a pod of which a text shows a part of the containers alone, for a log that is
// named after none of them: the line of kubectl get pods counts more than are known. It returns nil if it does not.
func (b *bundle) uncounted(p *evidence.Pod, l placedLog) *evidence.Container {
	container := cmp.Or(programOf(l), l.container)
	if container == "" && path.Ext(l.Source.File) == ".log" {
		container = l.base
	}
	if p.Row != nil || !p.Omitted.Spec && !p.Omitted.Hooks || !partial.IsLabel.MatchString(container) || strings.HasPrefix(p.Object.Name, container+"-") {
		return nil
	}
	for _, t := range b.texts {
		for _, r := range t.Pods {
			if r.Name == p.Object.Name && r.Of > len(p.Object.Spec.Containers) {
				p.Object.Spec.Containers, p.Omitted.Spec = append(p.Object.Spec.Containers, corev1.Container{Name: container}), true
				p.Containers = append(p.Containers, &evidence.Container{Name: container, Kind: startup.Plain, Restarts: -1})
				return p.Containers[len(p.Containers)-1]
			}
		}
	}
	return nil
}

// starting are the STATUS of pods of which no container runs yet. waiting has the STATUS of one container.
var (
	starting = regexp.MustCompile(`^(?:Pending|ContainerCreating|PodInitializing|Init:0/\d+)$`)
	waiting  = regexp.MustCompile(`^(?:ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|CrashLoopBackOff|CreateContainer(?:Config)?Error|RunContainerError)$`)
)

// pulled matches the events about an image.
var pulled = regexp.MustCompile(`\bimage "([^"\s]+)"`)

// startingRows makes pods of lines about which there are events too, if the STATUS and the events together say how the
// containers are: none has started, or the only one that the events are about waits.
func (b *bundle) startingRows() {
	for _, q := range b.pods {
		p, containers := q.Pod, []string{}
		if p.Row == nil || len(p.Object.Spec.Containers) > 0 {
			continue
		}
		n, image := 0, ""
		for _, e := range b.events {
			if e.About != evidence.About("Pod", p.Object.Namespace, p.Object.Name) {
				continue
			}
			if m := pulled.FindStringSubmatch(e.Message); m != nil {
				image = m[1]
			}
			if n++; e.Container != "" && !slices.Contains(containers, e.Container) {
				containers = append(containers, e.Container)
			}
		}
		switch {
		case n == 0:
			continue
		case starting.MatchString(p.Row.Status):
		case waiting.MatchString(p.Row.Status) && len(containers) < 2 && p.Row.Of == 1:
			containers = append(containers, partial.NoContainer)
			p.Object.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containers[0], Image: image, RestartCount: int32(p.Row.Restarts), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: p.Row.Status}}}}
		default:
			continue
		}
		p.Object.Status.Phase = corev1.PodPending
		if p.Row.Restarts > 0 {
			p.Object.Status.Phase = corev1.PodRunning
		}
		*p = *partial.Pod(p.Object, p.Source, true)
	}
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
