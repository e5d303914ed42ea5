package gather

import (
	"bytes"

	"outrider.dev/internal/doctor/evidence"
)

// Limits of the texts beside pods.
const (
	mostBeside = 200 // of all, and of one pod
	mostPeers  = 10  // pods of the evidence up to which each has the logs of the others beside it
)

// addBeside adds a text that is the log of no container. Of one that is no text, as its first bytes show, nothing is read.
func (b *bundle) addBeside(l placedLog, head []byte) {
	if len(b.beside) < mostBeside && !bytes.ContainsRune(head, 0) {
		b.beside = append(b.beside, l)
	}
}

// giveBeside gives each pod the texts beside it, and the logs of the other pods if these are few.
func (b *bundle) giveBeside() {
	add := func(p *evidence.Pod, l *evidence.Log, of string, unnamed bool) {
		if len(p.Beside) < mostBeside {
			p.Beside = append(p.Beside, evidence.Beside{Log: l, Of: of, Unnamed: unnamed})
		}
	}
	for _, l := range b.beside {
		for _, p := range b.near(l.folder, name{}) {
			add(p, l.Log, "", l.unnamed)
		}
	}
	for _, p := range b.pods {
		for _, q := range b.pods {
			for _, c := range q.Containers {
				for _, l := range c.Logs {
					if p.Pod != q.Pod && len(b.pods) <= mostPeers {
						add(p.Pod, l, q.Object.Name+"/"+c.Name, false)
					}
				}
			}
		}
	}
}
