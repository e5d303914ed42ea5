package resource

import (
	"sync"
	"sync/atomic"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/features"
)

// maxCached limits the bytes of cached resources. In a mesh with 10,000 services the resources that
// proxies use take some 5 kB for each service.
const maxCached = 64 << 20

// A resourceCache contains built resources, by keys that contain everything on which the resources
// depend. Keys contain nothing that a caller can choose freely.
type resourceCache struct {
	mu        sync.Mutex
	resources map[any]*xds.Resource
	choices   map[endpointsKey]choices // see [snapshot.choicesOf]
	bytes     int64
	total     *atomic.Int64 // bytes in all caches that share a limit; nil: this cache shares none
}

// get returns the resource with a key; the first call builds it.
func (c *resourceCache) get(key any, build func() *xds.Resource) *xds.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.resources[key]
	if ok {
		return r
	}
	r = build()
	n := cost(r)
	if c.bytes+n > maxCached {
		c.clear()
	}
	if c.resources == nil {
		c.resources = map[any]*xds.Resource{}
	}
	c.resources[key] = r
	c.count(n)
	return r
}

// getFor does the same as get, but does not cache resources for features that probably only one proxy
// has.
func (c *resourceCache) getFor(f features.Features, key any, build func() *xds.Resource) *xds.Resource {
	if !f.Shared() {
		return build()
	}
	return c.get(key, build)
}

func (c *resourceCache) count(n int64) {
	c.bytes += n
	if c.total != nil {
		c.total.Add(n)
	}
}

func (c *resourceCache) clear() {
	c.resources, c.choices = nil, nil
	c.count(-c.bytes)
}

// leave empties the cache. Resources that are built later are not counted.
func (c *resourceCache) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.total = nil
}

// cost estimates the memory of a resource, with its entry in a cache.
func cost(r *xds.Resource) int64 {
	const overhead = 400
	if r == nil {
		return overhead
	}
	return int64(overhead + len(r.Name) + len(r.Body.GetValue()))
}

// A cache contains a resourceCache for each service and workload for which something was built, and one
// for resources that depend on no object.
type cache struct {
	shared *resourceCache

	mu      sync.Mutex
	objects map[any]*resourceCache // by *mesh.Service or *mesh.Workload
	total   *atomic.Int64          // bytes in all caches of objects
}

func newCache() *cache {
	return &cache{objects: map[any]*resourceCache{}, shared: &resourceCache{}, total: &atomic.Int64{}}
}

// carryOver returns a cache for a newer mesh, without the objects that changed. Its cost depends on how
// much was built, not on the size of the mesh.
func (c *cache) carryOver(m *mesh.Mesh) *cache {
	out := newCache()
	c.mu.Lock()
	defer c.mu.Unlock()
	out.shared, out.total = c.shared, c.total
	c.total = &atomic.Int64{} // a new counter for the resources that are still being built for the older mesh
	for object, resources := range c.objects {
		if unchanged(m, object) {
			out.objects[object] = resources
		} else {
			resources.leave()
		}
	}
	return out
}

func unchanged(m *mesh.Mesh, object any) bool {
	switch o := object.(type) {
	case *mesh.Service:
		return m.Service(o.Host) == o
	case *mesh.Workload:
		return m.Pod(o.Namespace, o.Name) == o || m.Host(o.Namespace, o.Name) == o
	}
	return false
}

// of returns the resources of a service or workload. If the resources of all objects together take too much
// memory, those of arbitrary objects are dropped until half of the limit remains; they are built again on their
// next use.
func (c *cache) of(object any) *resourceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total.Load() > maxCached {
		for other, resources := range c.objects { // any order: none is more likely to be used again
			if c.total.Load() <= maxCached/2 {
				break
			}
			resources.leave()
			delete(c.objects, other)
		}
	}
	r := c.objects[object]
	if r == nil {
		r = &resourceCache{total: c.total}
		c.objects[object] = r
	}
	return r
}
