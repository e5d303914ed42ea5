package xds

import (
	"cmp"
	"slices"
	"sync"
)

// A Memory keeps the clusters that workloads asked for, so that their next pod is told
// them before it asks. It is called by many streams at a time and does not block.
type Memory interface {
	Load(Workload) []string
	Store(w Workload, names []string) // adds names
}

// MemoryLimits bound a memory. The zero value of a field means its default.
type MemoryLimits struct {
	Workloads int // default 5,000; the one that asked longest ago is forgotten
	Names     int // of one workload; default 256; likewise
}

func (l MemoryLimits) withDefaults() MemoryLimits {
	return MemoryLimits{cmp.Or(l.Workloads, 5000), cmp.Or(l.Names, 256)}
}

// InMemory is a memory that lasts as long as the process.
type InMemory struct {
	limits MemoryLimits

	mu    sync.Mutex
	known map[Workload]*remembered
	clock uint64
}

// remembered is what one workload asked for, the newest last.
type remembered struct {
	names []string
	used  uint64
}

// NewMemory returns an empty memory.
func NewMemory(l MemoryLimits) *InMemory {
	return &InMemory{limits: l.withDefaults(), known: map[Workload]*remembered{}}
}

// Load returns what a workload asked for, in order.
func (m *InMemory) Load(w Workload) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[w]
	if r == nil {
		return nil
	}
	m.clock++
	r.used = m.clock
	return slices.Sorted(slices.Values(r.names))
}

// Store adds names to what a workload asked for.
func (m *InMemory) Store(w Workload, names []string) { m.store(w, names) }

// store reports what the workload now has, if that is something new, and which workload
// was forgotten for it.
func (m *InMemory) store(w Workload, names []string) (now []string, forgotten *Workload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, forgotten := m.of(w)
	changed := false
	for _, name := range names {
		i := slices.Index(r.names, name)
		if i >= 0 {
			r.names = slices.Delete(r.names, i, i+1)
		}
		changed = changed || i < 0
		r.names = append(r.names, name)
	}
	m.cut(r)
	if !changed {
		return nil, forgotten
	}
	return slices.Clone(r.names), forgotten
}

// learn adds what another memory knows of a workload, in its order; what only this one
// knows is newer. It returns what the workload now has.
func (m *InMemory) learn(w Workload, names []string) (now []string, forgotten *Workload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, forgotten := m.of(w)
	own := slices.DeleteFunc(r.names, func(name string) bool { return slices.Contains(names, name) })
	r.names = slices.Concat(names, own)
	m.cut(r)
	return slices.Clone(r.names), forgotten
}

// of returns what is remembered of a workload, as used now; for a new one another may be
// forgotten.
func (m *InMemory) of(w Workload) (r *remembered, forgotten *Workload) {
	if r = m.known[w]; r == nil {
		if len(m.known) >= m.limits.Workloads {
			forgotten = m.oldest()
			delete(m.known, *forgotten)
		}
		r = &remembered{}
		m.known[w] = r
	}
	m.clock++
	r.used = m.clock
	return r, forgotten
}

// cut forgets what was asked for longest ago, where there is too much.
func (m *InMemory) cut(r *remembered) {
	if over := len(r.names) - m.limits.Names; over > 0 {
		r.names = slices.Delete(r.names, 0, over)
	}
}

func (m *InMemory) oldest() *Workload {
	var out Workload
	least := uint64(0)
	for w, r := range m.known {
		if least == 0 || r.used < least {
			out, least = w, r.used
		}
	}
	return &out
}
