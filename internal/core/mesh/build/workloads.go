package build

import (
	"iter"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// A workload is the state of a builder about one.
type workload struct {
	spec     *mesh.WorkloadSpec
	services set[mesh.Key] // those that have it as a member
	current  *mesh.Workload
}

// workloads that there are, by all that can select them.
type workloads struct {
	byID        map[mesh.Key]*workload
	byLabel     multimap[label, mesh.Key] // by each of their labels
	byNamespace multimap[string, mesh.Key]
	outside     set[mesh.Key] // Hosts
	stale       set[mesh.Key]
	table       persistent.Table[mesh.Key, *mesh.Workload]
	hosts       persistent.Table[mesh.Key, *[]string] // of the services of each
}

// touch returns the state of a workload, new if need be, and marks it.
func (w *workloads) touch(id mesh.Key) *workload {
	of, ok := w.byID[id]
	if !ok {
		of = &workload{}
		w.byID[id] = of
	}
	w.stale.add(id)
	return of
}

// spec returns the Pod or Host of a key, or nil.
func (w *workloads) spec(id mesh.Key) *mesh.WorkloadSpec {
	if of := w.byID[id]; of != nil {
		return of.spec
	}
	return nil
}

func (w *workloads) set(p *mesh.WorkloadSpec, present bool) {
	id := p.Key()
	of := w.touch(id)
	of.spec = nil
	if present {
		of.spec = p
	}
	w.byNamespace.set(p.Namespace, id, present)
	if delete(w.outside, id); p.Host && present {
		w.outside.add(id)
	}
	for k, v := range p.Labels {
		w.byLabel.set(label{p.Namespace, k, v}, id, present)
	}
}

// selected returns the workloads of a namespace, or everywhere, that a selector matches: all without
// one. It is in no order.
func (w *workloads) selected(namespace string, everywhere bool, selector map[string]string) iter.Seq2[mesh.Key, *mesh.WorkloadSpec] {
	return func(yield func(mesh.Key, *mesh.WorkloadSpec) bool) {
		selects := func(id mesh.Key) bool {
			p := w.byID[id].spec
			return p != nil && (len(selector) == 0 || mesh.Selects(selector, p.Labels))
		}
		if everywhere {
			for id, of := range w.byID {
				if selects(id) && !yield(id, of.spec) {
					return
				}
			}
			return
		}
		candidates := w.byNamespace[namespace]
		if len(selector) > 0 {
			candidates = w.byLabel[selectorKey(namespace, selector)]
		}
		for id := range candidates {
			if selects(id) && !yield(id, w.byID[id].spec) {
				return
			}
		}
	}
}

// mark marks the workloads that [workloads.selected] returns.
func (w *workloads) mark(namespace string, everywhere bool, selector map[string]string) {
	for id := range w.selected(namespace, everywhere, selector) {
		w.stale.add(id)
	}
}

// join notes that a service has a workload as a member, and leave that it no longer has. Both mark it.
func (w *workloads) join(id, service mesh.Key)  { w.touch(id).services.add(service) }
func (w *workloads) leave(id, service mesh.Key) { delete(w.touch(id).services, service) }

// update replaces what is known of a workload; nil: it is gone.
func (w *workloads) update(id mesh.Key, next *mesh.Workload) {
	if next == nil {
		delete(w.byID, id)
		return
	}
	w.byID[id].current = next
}
