package localpod

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podspec"
)

// watchGates watches the journals that gates write into their shared volume, and sends the entries to the loop,
// because only a gate can report when the command behind it began. A pod without that volume has no gates.
func (p *Pod) watchGates() {
	dir := p.Volume(podspec.StateVolume)
	if _, err := os.Stat(dir); err != nil {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return // the result then lists the edges as Unjudged
	}
	if watcher.Add(dir) != nil {
		watcher.Close()
		return
	}
	p.work.Go(func() {
		defer watcher.Close()
		seen := map[string]int{}
		for {
			p.readGates(dir, watcher, seen)
			select {
			case <-watcher.Events:
			case <-watcher.Errors: // the queue of events has overflowed: read all journals again
			case <-p.over:
				return
			}
		}
	})
}

// readGates sends the new entries of each container's journal to the loop. seen is the number of entries sent
// before.
func (p *Pod) readGates(dir string, watcher *fsnotify.Watcher, seen map[string]int) {
	names, err := state.Containers(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		// Adding a watched directory again has no effect.
		_ = watcher.Add(filepath.Join(dir, name))
		entries, err := state.Journal(dir, name)
		if err != nil || len(entries) <= seen[name] {
			continue
		}
		for _, e := range entries[seen[name]:] {
			p.send(news{event: kubelet.Event{At: e.Time.Sub(p.began), Container: name}, report: e.What, detail: e.Detail})
		}
		seen[name] = len(entries)
	}
}
