package build

import (
	"iter"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// A workload is the state of the builder for one workload.
type workload struct {
	spec     *mesh.WorkloadSpec
	services set[mesh.Key] // services of which it is a member
	current  *mesh.Workload
}

// workloads contains the workloads that exist, with indexes by everything that can select them.
type workloads struct {
	byID        map[mesh.Key]*workload
	byLabel     multimap[label, mesh.Key] // workloads by each of their labels
	byNamespace multimap[string, mesh.Key]
	outside     set[mesh.Key] // Hosts
	stale       set[mesh.Key]
	table       persistent.Table[mesh.Key, *mesh.Workload]
	hosts       persistent.Table[mesh.Key, *[]string] // hosts of each workload's services
}

// touch marks a workload and returns its state. If the workload has no state yet, touch creates it.
func (w *workloads) touch(id mesh.Key) *workload {
	of, ok := w.byID[id]
	if !ok {
		of = &workload{}
		w.byID[id] = of
	}
	w.stale.add(id)
	return of
}

// spec returns the Pod or Host with a key, or nil.
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

// selected returns the workloads that a selector matches, in a namespace or everywhere, in undefined order.
// An empty selector matches all.
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

func (w *workloads) mark(namespace string, everywhere bool, selector map[string]string) {
	for id := range w.selected(namespace, everywhere, selector) {
		w.stale.add(id)
	}
}

// join records that a workload is a member of a service; leave records that it no longer is. Both mark the
// workload.
func (w *workloads) join(id, service mesh.Key)  { w.touch(id).services.add(service) }
func (w *workloads) leave(id, service mesh.Key) { delete(w.touch(id).services, service) }

// update sets the current version of a workload; nil removes the workload.
func (w *workloads) update(id mesh.Key, next *mesh.Workload) {
	if next == nil {
		delete(w.byID, id)
		return
	}
	w.byID[id].current = next
}
