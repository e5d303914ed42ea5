package gather

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/attribution"
	"outrider.dev/internal/doctor/evidence/partial"
)

// A bundle collects all facts that are read, until finish assigns them to pods.
type bundle struct {
	pods     []placed
	events   []podEvent
	owners   map[string]evidence.Owner // by kind, namespace and name
	journals []placedJournal
	logs     []placedLog
	missing  []placedMissing
	failures []string // failures noted in a bug report
	taken    evidence.Time
	noEvents []evidence.Missing // namespaces whose events could not be read
	cut      []string           // files with logs that a bug report has cut, so that only the end is left
	left     []evidence.Unused
	works    map[string]*evidence.Creator // by kind, namespace and name
	configs  map[string]evidence.Config   // by kind, namespace and name
	parts    []part                       // of objects that name no pod
	texts    []placedText
	tickets  []placedTicket
	of       name // what the piece of a ticket that is being read is of
	beside   []placedLog
	other    bool                // the file that is being read has objects of other kinds than those of a pod and its owners
	words    bool                // the piece that is being read has a person's words
	gaps     bool                // the document that is being read leaves something out
	used     map[string]bool     // files of which something is used
	kinds    map[string][]string // by file: kinds of objects that are not read
	folders  map[string]string   // by file: its folder
	at       map[string]int      // index in pods, by name and UID
	depth    int                 // nesting depth of the list that is being read
	held     int64               // approximate bytes of memory that the objects use
	most     int64               // limit of held
}

// A placed is a pod with the folders in which it was found.
type placed struct {
	*evidence.Pod
	folders []string
}

type placedJournal struct {
	*evidence.Journal
	folder string
}

// A placedMissing is a piece of evidence that could not be read, with the pod to which it belongs.
type placedMissing struct {
	pod *evidence.Pod
	evidence.Missing
}

type podEvent struct {
	partial.Aged // with ages only if a text has the event
	uid, id      string
	text         bool // it was read from a text, so that it may be one of the others
}

// A placedLog is a log with its folder and the information that its file name contains.
type placedLog struct {
	*evidence.Log
	name
	folder  string
	empty   bool
	dropped bool   // it is no log
	unnamed bool   // it is one, of a container that is not known
	taken   string // why it is taken as its container's, if nothing names that
	text    []byte // its first bytes, which may be the answer of kubectl in its place
}

func newBundle(most int64) *bundle {
	return &bundle{owners: map[string]evidence.Owner{}, works: map[string]*evidence.Creator{}, configs: map[string]evidence.Config{}, at: map[string]int{}, used: map[string]bool{}, kinds: map[string][]string{}, folders: map[string]string{}, most: most}
}

func (b *bundle) unused(from evidence.Source, format string, args ...any) {
	switch n := len(b.left); {
	case n < maxNotes:
		b.left = append(b.left, evidence.Unused{Source: from, Why: fmt.Sprintf(format, args...)})
	case n == maxNotes:
		b.left = append(b.left, evidence.Unused{Source: from, Why: "this, and more that is not listed"})
	}
}

// finish assigns each fact to its pod.
func (b *bundle) finish(ctx context.Context) (pods []*evidence.Pod, unused []evidence.Unused) {
	b.addTickets()
	b.addParts()
	b.addTexts()
	for _, p := range b.pods {
		b.ownByName(p.Pod)
	}
	slices.SortFunc(b.pods, func(a, c placed) int {
		return cmp.Or(strings.Compare(a.Name(), c.Name()), strings.Compare(string(a.Object.UID), string(c.Object.UID)))
	})
	byAbout := map[string][]int{}
	for i, e := range b.events {
		byAbout[e.About] = append(byAbout[e.About], i)
	}
	for _, p := range b.pods {
		p.Taken = b.taken
		b.own(p.Pod)
		b.giveEvents(p.Pod, byAbout)
		p.FromEvents()
		pods = append(pods, p.Pod)
	}
	var left []leftLog
	for _, l := range b.logs {
		l.Truncated = l.Truncated || slices.Contains(b.cut, l.Source.File)
		if why := b.giveLog(ctx, &l); why != "" {
			left = append(left, leftLog{l, why})
		}
	}
	b.giveLeft(ctx, left)
	b.noteUnread()
	b.giveBeside()
	for _, j := range b.journals {
		if p, why := b.onlyPod(j.folder); p != nil {
			p.Journal = j.Journal
		} else {
			b.unused(j.Source, "%s", why)
		}
	}
	for _, p := range pods {
		b.giveFailures(p)
		for _, m := range b.noEvents {
			if m.What == "events of namespace "+p.Object.Namespace {
				p.Missing = append(p.Missing, m)
			}
		}
	}
	for _, m := range b.missing {
		m.pod.Missing = append(m.pod.Missing, m.Missing)
	}
	for _, p := range pods {
		if p.Settle(ctx); p.Row == nil { // of which the line says that all else is missing
			noteMissing(p)
			noteOmitted(p)
		}
	}
	return pods, b.left
}

// giveFailures adds to a pod the failures that a bug report notes for the pod's logs. Their form is "log of shop/a,
// app.previous.log: why".
func (b *bundle) giveFailures(p *evidence.Pod) {
	for _, f := range b.failures {
		rest, ok := strings.CutPrefix(f, "log of "+p.Name()+", ")
		if !ok {
			continue
		}
		file, why, _ := strings.Cut(rest, ": ")
		file = strings.TrimSuffix(file, ".log")
		container, previous := strings.CutSuffix(file, ".previous")
		kind := evidence.FromLog
		if previous {
			kind = evidence.FromPreviousLog
		}
		p.Missing = append(p.Missing, evidence.Missing{Kind: kind, What: evidence.NameOfLog(container, previous), Why: why})
	}
}

// own adds the owners of a pod: its controller, the controller's controller, and so on.
func (b *bundle) own(p *evidence.Pod) {
	refs, namespace := p.Object.OwnerReferences, p.Object.Namespace
	for depth := 0; depth < 4; depth++ {
		kind, name := evidence.Controller(refs)
		if kind == "" {
			break
		}
		o, there := b.owners[evidence.About(kind, namespace, name)]
		if !there {
			p.Owners = append(p.Owners, evidence.Owner{Kind: kind, Name: name})
			p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromOwner, What: evidence.About(kind, namespace, name), Why: "it is not among the evidence"})
			break
		}
		p.Owners = append(p.Owners, o)
		if o.Object == nil {
			break
		}
		refs = o.Object.GetOwnerReferences()
	}
	hash := p.Object.Labels["pod-template-hash"]
	if n := len(p.Owners); n == 1 && p.Owners[0].Kind == "ReplicaSet" && hash != "" && p.Owners[0].Object == nil {
		if name, ok := strings.CutSuffix(p.Owners[0].Name, "-"+hash); ok {
			o, there := b.owners[evidence.About("Deployment", namespace, name)]
			if !there {
				o = evidence.Owner{Kind: "Deployment", Name: name}
			}
			p.Owners = append(p.Owners, o)
		}
	}
}

// giveEvents adds to a pod the events of itself and its owners, without duplicates. byAbout has the indexes of the events.
func (b *bundle) giveEvents(p *evidence.Pod, byAbout map[string][]int) {
	self := evidence.About("Pod", p.Object.Namespace, p.Object.Name)
	of := []string{self}
	for _, o := range p.Owners {
		if o.Kind == "Node" { // of a static pod: its events are about much else
			continue
		}
		of = append(of, evidence.About(o.Kind, p.Object.Namespace, o.Name))
	}
	if p.Object.Name == partial.NoName && len(b.pods) == 1 { // the events of a pod can only be of this one
		of = append(of, slices.DeleteFunc(slices.Sorted(maps.Keys(byAbout)), func(key string) bool { return !strings.HasPrefix(key, "Pod ") })...)
	}
	slices.Sort(of)
	var mine []int
	for _, key := range slices.Compact(of) {
		mine = append(mine, byAbout[key]...)
	}
	slices.Sort(mine) // the order in which they were read
	seen := map[string]bool{}
	var texts []partial.Aged
	for _, i := range mine {
		e := b.events[i]
		otherPod := e.About == self && e.uid != "" && p.Object.UID != "" && e.uid != string(p.Object.UID)
		if otherPod || e.id != "" && seen[e.id] {
			continue
		}
		seen[e.id] = true
		if e.text {
			partial.FindContainer(p, &e.Event)
			texts = append(texts, e.Aged)
			continue
		}
		p.Events = append(p.Events, e.Event)
	}
	if len(p.Events) == 0 { // else these are the same events, without times
		partial.Dated(p, texts)
		for _, e := range texts {
			p.Events = append(p.Events, e.Event)
		}
	}
	slices.SortStableFunc(p.Events, func(a, c evidence.Event) int { return a.First.At.Compare(c.First.At) })
}

// giveLog finds the container of a log by the name of its file and the pods of its folder, and returns why it did not.
func (b *bundle) giveLog(ctx context.Context, l *placedLog) (why string) {
	candidates := b.near(l.folder, l.name)
	if len(candidates) == 0 {
		b.addBeside(*l, nil)
		b.unused(l.Source, "no pod of the evidence is %s; want its object beside the log, as kubectl get pod NAME -o yaml prints it", l.describe())
		return ""
	}
	type match struct {
		pod       *evidence.Pod
		container *evidence.Container
		meant     bool
	}
	var found []match
	for _, p := range candidates {
		if c := p.Container(l.whole); c != nil && l.whole != "" { // a container may be called previous-orders
			l.previous = false
			found = append(found, match{p, c, false})
		} else if c := l.containerIn(p); c != nil {
			found = append(found, match{p, c, false})
		}
	}
	for _, p := range candidates {
		if len(found) == 0 || found[0].meant {
			m, ok := attribution.Of(ctx, p, b.lines(l))
			if c := l.match(m, ok); c != nil {
				found = append(found, match{p, c, true})
			}
		}
	}
	if len(found) == 0 && len(candidates) == 1 {
		if c := b.uncounted(candidates[0], *l); c != nil {
			found = append(found, match{candidates[0], c, false})
		}
	}
	switch {
	case len(found) == 1:
		b.give(found[0].pod, *l, found[0].container)
		return ""
	case len(found) > 1:
		var names []string
		for _, m := range found {
			names = append(names, m.pod.Name())
		}
		return fmt.Sprintf("pods %s have a container of this name: name the file POD_CONTAINER.log, or give each pod a folder", strings.Join(names, ", "))
	case strings.Contains(l.base, "access") && len(candidates) == 1:
		b.addBeside(*l, nil)
		b.unused(l.Source, "an access log is no log of a container")
		return ""
	case l.heading != "":
		return "its heading does not name one container of the pod: write the command above it, as kubectl logs POD -c CONTAINER"
	}
	var names []string
	for _, p := range candidates {
		for _, c := range p.Containers {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	if len(names) == 0 {
		return "the evidence does not say of which pod and container it is: name it POD_CONTAINER.log"
	}
	return fmt.Sprintf("it is not named after a container of a pod beside it, as CONTAINER.log or CONTAINER.previous.log (%s)", strings.Join(names, ", "))
}

// near returns the pods to which a file may belong: those that the file's name identifies, or else the pods of the
// nearest folder that contains pods. The search begins in the file's own folder and goes upwards.
func (b *bundle) near(folder string, n name) (out []*evidence.Pod) {
	if n.pod != "" {
		for _, p := range b.pods {
			if n.means(p.Object) {
				out = append(out, p.Pod)
			}
		}
		return out
	}
	for {
		for _, p := range b.pods {
			if slices.Contains(p.folders, folder) {
				out = append(out, p.Pod)
			}
		}
		switch {
		case len(out) > 0 || folder == single:
			return out
		case folder == "." || folder == "/":
			folder = single
		default:
			folder = path.Dir(folder)
		}
	}
}

// single is the folder of files that were given individually. Its pods are candidates for the files of every folder.
const single = ""

// onlyPod returns the pod of a folder that contains exactly one pod.
func (b *bundle) onlyPod(folder string) (*evidence.Pod, string) {
	switch pods := b.near(folder, name{}); len(pods) {
	case 0:
		return nil, "there is no pod in its folder"
	case 1:
		return pods[0], ""
	}
	return nil, "there are several pods in its folder: give each a folder"
}

// give adds a log to a container, with the number of its run.
func (b *bundle) give(p *evidence.Pod, l placedLog, c *evidence.Container) {
	b.use(l.Source)
	if says := p.Instead(l.text, c.Name); says != "" && len(l.text) <= evidence.MostInstead {
		p.Missing = append(p.Missing, evidence.Missing{Kind: l.Log.Source.Kind, What: evidence.NameOfLog(c.Name, l.previous), Why: fmt.Sprintf("%s has the answer of kubectl in its place: %s", path.Base(l.Source.File), says)})
		return
	}
	l.Log.Run = -1
	switch {
	case l.run >= 0:
		l.Log.Run = l.run
	case c.Restarts < 0:
	case l.previous:
		l.Log.Source.Kind, l.Log.Previous = evidence.FromPreviousLog, true
		l.Log.Run = c.Restarts - 1
		if c.Waiting != nil { // while the container waits, the kubelet also returns its last log as the previous one
			l.Log.Run = c.Restarts
		}
	default:
		l.Log.Run = c.Restarts
		if c.Run(c.Restarts) == nil && c.Waiting == nil { // whose state is not known
			if run := attribution.RunOf(context.Background(), c, l.Log); run >= 0 {
				l.Log.Run = run
			}
		}
	}
	if l.Log.Run < 0 && l.run < 0 && l.previous && c.Restarts >= 0 {
		if l.empty { // must-gather creates both files for each container
			return
		}
		p.Notes = append(p.Notes, evidence.Note{Source: l.Source, Text: fmt.Sprintf("a previous log, although container %s has not restarted", c.Name)})
	}
	if other := c.Log(l.Log.Run); other != nil && l.Log.Run >= 0 {
		if c.Waiting == nil || other.Previous == l.Log.Previous {
			p.Notes = append(p.Notes, evidence.Note{Source: l.Source, Text: fmt.Sprintf("a second log of container %s, run %d; the first is %s", c.Name, l.Log.Run, other.Source)})
		}
		if l.Log.Previous == other.Previous {
			l.Log.Run = -1
		} else {
			return // a duplicate of a log
		}
	}
	c.Logs = append(c.Logs, l.Log)
	if l.Log.Taken = l.taken; l.taken != "" {
		p.Notes = append(p.Notes, evidence.Note{Source: l.Source, Text: fmt.Sprintf("%s is taken as the log of container %s: %s", path.Base(l.Source.String()), c.Name, l.taken)})
	}
	slices.SortStableFunc(c.Logs, func(a, b *evidence.Log) int { return a.Run - b.Run })
	if l.Truncated {
		p.Missing = append(p.Missing, evidence.Missing{Kind: l.Log.Source.Kind, What: fmt.Sprintf("the rest of the log of container %s, run %d", c.Name, l.Log.Run), Why: "truncated"})
	}
}

// noteMissing notes the runs without a log, unless the reason is already noted.
func noteMissing(p *evidence.Pod) {
	for _, c := range p.Containers {
		for _, r := range c.Runs {
			if c.Waiting != nil && r.Number < c.Restarts {
				continue // its last run is the previous one: the kubelet keeps no log of an earlier one
			}
			kind, what := evidence.FromLog, evidence.NameOfLog(c.Name, false)
			if r.Number < c.Restarts {
				kind, what = evidence.FromPreviousLog, evidence.NameOfLog(c.Name, true)
			}
			noted := slices.ContainsFunc(p.Missing, func(m evidence.Missing) bool { return m.What == what })
			if c.Log(r.Number) == nil && !noted && r.Number >= c.Restarts-1 {
				why := "it is not among the evidence"
				if slices.ContainsFunc(p.Beside, func(s evidence.Beside) bool { return s.Unnamed }) {
					why = "no log of the evidence names it"
				}
				p.Missing = append(p.Missing, evidence.Missing{Kind: kind, What: what, Why: why})
			}
		}
	}
	if len(p.Events) == 0 && !slices.ContainsFunc(p.Missing, func(m evidence.Missing) bool { return m.Kind == evidence.FromEvent }) {
		p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromEvent, What: "events", Why: "there are none: the API server forgets them after an hour"})
	}
}
