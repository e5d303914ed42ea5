package resource

import (
	"sync"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// A drawer has resources that were built, by what they were built for.
type drawer struct {
	mu   sync.Mutex
	kept map[any]*xds.Resource
}

// get returns the resource of a key, which build makes the first time.
func (d *drawer) get(key any, build func() *xds.Resource) *xds.Resource {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.kept[key]
	if !ok {
		r = build()
		if d.kept == nil {
			d.kept = map[any]*xds.Resource{}
		}
		d.kept[key] = r
	}
	return r
}

// A cabinet has a drawer for each object of the mesh that something was built for, and
// one for what goes with none.
type cabinet struct {
	mu        sync.Mutex
	services  map[*mesh.Service]*drawer
	workloads map[*mesh.Workload]*drawer
	rest      *drawer
}

// heir returns a cabinet for a newer mesh, with what is still right. It looks only at
// what was built.
func (c *cabinet) heir(m *mesh.Mesh) *cabinet {
	out := &cabinet{services: map[*mesh.Service]*drawer{}, workloads: map[*mesh.Workload]*drawer{}, rest: &drawer{}}
	if c == nil {
		return out
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.rest = c.rest
	for s, d := range c.services {
		if m.Service(s.Host) == s {
			out.services[s] = d
		}
	}
	for w, d := range c.workloads {
		if m.Pod(w.Namespace, w.Name) == w || m.Host(w.Namespace, w.Name) == w {
			out.workloads[w] = d
		}
	}
	return out
}

func (c *cabinet) service(s *mesh.Service) *drawer   { return open(c, c.services, s) }
func (c *cabinet) workload(w *mesh.Workload) *drawer { return open(c, c.workloads, w) }

func open[K comparable](c *cabinet, in map[K]*drawer, k K) *drawer {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := in[k]
	if d == nil {
		d = &drawer{}
		in[k] = d
	}
	return d
}
