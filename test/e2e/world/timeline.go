package world

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
	"outrider.dev/test/cluster/containerd"
)

// A Record is a line of an application's log: "e2e NANOSECONDS WORD [NAME=VALUE...]".
type Record struct {
	At        time.Time
	Container string
	Restart   int
	Event     string
	Values    map[string]string
}

// Records returns the records of one container of the pod, or of all if container is empty.
func (p *Pod) Records(container string) (out []Record) {
	for _, l := range p.w.logs.of(p.UID) {
		w := strings.Fields(l.Text)
		if len(w) < 3 || w[0] != "e2e" || container != "" && l.Container != container {
			continue
		}
		ns, err := strconv.ParseInt(w[1], 10, 64)
		if err != nil {
			continue
		}
		word := Record{At: time.Unix(0, ns), Container: l.Container, Restart: l.Restart, Event: w[2], Values: map[string]string{}}
		for _, pair := range w[3:] {
			name, value, _ := strings.Cut(pair, "=")
			word.Values[name] = value
		}
		out = append(out, word)
	}
	return out
}

// Wrote returns the number of lines of a container's log that contain all the given texts.
func (p *Pod) Wrote(container string, texts ...string) (n int) {
	for _, l := range p.w.logs.of(p.UID) {
		missing := func(text string) bool { return !strings.Contains(l.Text, text) }
		if l.Container == container && !slices.ContainsFunc(texts, missing) {
			n++
		}
	}
	return n
}

// Has returns the n-th record of an event that a container emitted, counted from 1; false if there is none.
func (p *Pod) Has(container, word string, n int) (Record, bool) {
	for _, w := range p.Records(container) {
		if w.Event != word {
			continue
		}
		if n--; n == 0 {
			return w, true
		}
	}
	return Record{}, false
}

// Timeline returns the events of the pod's containers. The container of a command behind a gate runs earlier
// than the command, so its start is the command's own record.
func (p *Pod) Timeline() startup.Timeline {
	var out startup.Timeline
	add := func(at time.Time, container string, what startup.What, incarnation int, detail string) {
		out = append(out, startup.Event{Container: container, What: what, At: at.Sub(p.made), Incarnation: incarnation, Detail: detail})
	}
	records, last := map[string]bool{}, map[run]time.Time{}
	for _, w := range p.Records("") {
		records[w.Container] = true
		switch what := startup.What(w.Event); what {
		case startup.IsStarted:
			add(p.began(w), w.Container, what, w.Restart, "")
		case startup.IsHealthy, startup.IsStopping:
			add(w.At, w.Container, what, w.Restart, "")
		}
		if w.Event == "done" {
			last[run{w.Container, w.Restart}] = w.At
		}
		if w.Values["result"] == "refused" {
			add(w.At, w.Container, startup.IsRefused, w.Restart, "")
		}
	}
	p.addRuntime(records, last, add)
	for _, l := range p.w.logs.of(p.UID) {
		if l.Container == podspec.OurProxy {
			if what, at, ok := proxyLine(l); ok {
				add(at, l.Container, what, l.Restart, "")
			}
		}
	}
	if at, ok := p.Addressed(); ok {
		add(at, "", startup.HasAddress, 0, "")
	}
	if !p.deleted.IsZero() {
		add(p.deleted, "", startup.PodDeleted, 0, "")
	}
	return causal(out)
}

// causal sorts the events by time, and puts the events of one run into causal order: a process that writes a
// line has started and has not ended. The times come from several observers. When many pods start at once,
// containerd's start event is late, and the proxy's own line "ready" can have an earlier time.
func causal(t startup.Timeline) startup.Timeline {
	t = t.Sorted()
	for i, e := range t {
		same := func(o startup.Event) bool { return o.Container == e.Container && o.Incarnation == e.Incarnation }
		if e.What == startup.IsStarted {
			first := slices.IndexFunc(t, same)
			e.At = t[first].At
			t = slices.Insert(slices.Delete(t, i, i+1), first, e)
		}
	}
	for i, e := range slices.Backward(t) {
		if e.What != startup.IsCompleted && e.What != startup.HasFailed {
			continue
		}
		last := i
		for j, o := range t[i:] {
			if o.Container == e.Container && o.Incarnation == e.Incarnation {
				last = i + j
			}
		}
		e.At = t[last].At
		t = slices.Insert(slices.Delete(t, i, i+1), last, e)
	}
	return t
}

// began returns the time at which a command began. The command writes its first record a little after its start. So
// if its gate has recorded an earlier time for the start, began returns that. (After the start, the kernel may let the
// gate or the command run first.)
func (p *Pod) began(w Record) time.Time {
	at := w.At
	for _, e := range p.journal(w.Container) {
		if e.What == startup.IsStarted && e.Time.Before(w.At) && w.At.Sub(e.Time) < time.Second {
			at = e.Time // the same run, because no two runs begin within a second
		}
	}
	return at
}

// journal returns the journal of a container's gate, as it was when it could last be read: the journal is in a volume
// that is deleted with the pod.
func (p *Pod) journal(container string) []state.Entry {
	dir := filepath.Join("/var/lib/kubelet/pods", p.UID, "volumes", "kubernetes.io~empty-dir", podspec.StateVolume)
	if _, byNode := podspec.NodeWork(p.asMade); byNode {
		all := p.w.runtime.Sandboxes(p.UID)
		dir = filepath.Join(contract.NodeStatesDir, strings.Join(all[max(len(all)-1, 0):], ""))
	}
	entries, err := state.Journal(dir, container)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.journals == nil {
		p.journals = map[string][]state.Entry{}
	}
	if err == nil && len(entries) > len(p.journals[container]) {
		p.journals[container] = entries
	}
	return p.journals[container]
}

// A run is one start of a container.
type run struct {
	container string
	restart   int
}

// addRuntime adds containerd's events. The end of a run is its time in the map last, if the map has one: a command
// behind a gate ends, and writes its last record, before the gate does.
func (p *Pod) addRuntime(records map[string]bool, last map[run]time.Time, add func(time.Time, string, startup.What, int, string)) {
	starts, sandboxes := map[string]int{}, 0
	for _, e := range p.w.runtime.Of(p.UID) {
		switch {
		case e.Container == "" && e.Topic == containerd.Created:
			if sandboxes++; sandboxes > 1 {
				add(e.At, "", startup.NewSandbox, 0, "")
			}
		case e.Container == "":
		case e.Topic == containerd.Started:
			if !records[e.Container] {
				add(e.At, e.Container, startup.IsStarted, starts[e.Container], "")
			}
			starts[e.Container]++
		case e.Topic == containerd.Exited:
			n, at := starts[e.Container]-1, e.At
			if done, ok := last[run{e.Container, n}]; ok {
				at = done
			}
			if e.Status == 0 {
				add(at, e.Container, startup.IsCompleted, n, "")
			} else {
				add(at, e.Container, startup.HasFailed, n, strconv.Itoa(e.Status))
			}
		}
	}
}

// proxyLine parses a line of the agent's log. The result is false unless the line reports that the proxy became ready
// or is no longer ready.
func proxyLine(l Line) (startup.What, time.Time, bool) {
	var line struct {
		Msg string    `json:"msg"`
		At  time.Time `json:"at"`
	}
	if json.Unmarshal([]byte(l.Text), &line) != nil || line.At.IsZero() {
		return "", time.Time{}, false
	}
	switch line.Msg {
	case "ready":
		return startup.IsHealthy, line.At, true
	case "not ready":
		return startup.IsUnhealthy, line.At, true
	}
	return "", time.Time{}, false
}
