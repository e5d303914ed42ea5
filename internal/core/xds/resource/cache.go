package resource

import (
	"sync"
	"sync/atomic"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// maxCached bounds the bytes of cached resources: those that proxies use in a mesh of 10,000
// services have some 5 kB for each.
const maxCached = 64 << 20

// A resourceCache has built resources, by a key that holds all that they depend on. A key has
// nothing of which a caller can make up any number.
type resourceCache struct {
	mu        sync.Mutex
	resources map[any]*xds.Resource
	bytes     int64
	total     *atomic.Int64 // bytes of several; nil: it is alone
}

// get returns the resource of a key, which build makes the first time.
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

// getFor is get, without the cache for a proxy whose features no other is likely to have.
func (c *resourceCache) getFor(f features, key any, build func() *xds.Resource) *xds.Resource {
	if !f.shared() {
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
	c.resources = nil
	c.count(-c.bytes)
}

// leave removes the resources, and counts no others.
func (c *resourceCache) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.total = nil
}

// cost is about what a resource occupies, with its place in a cache.
func cost(r *xds.Resource) int64 {
	const overhead = 400
	if r == nil {
		return overhead
	}
	return int64(overhead + len(r.Name) + len(r.Body.GetValue()))
}

// A cache has a resourceCache for each service and workload that something was built for,
// and one for resources that depend on no object.
type cache struct {
	shared *resourceCache

	mu      sync.Mutex
	objects map[any]*resourceCache // by *mesh.Service or *mesh.Workload
	total   *atomic.Int64          // bytes of objects
}

func newCache() *cache {
	return &cache{objects: map[any]*resourceCache{}, shared: &resourceCache{}, total: &atomic.Int64{}}
}

// carryOver returns a cache for a newer mesh, without the objects that changed. Its cost
// goes with what was built, not with the mesh.
func (c *cache) carryOver(m *mesh.Mesh) *cache {
	out := newCache()
	c.mu.Lock()
	defer c.mu.Unlock()
	out.shared, out.total = c.shared, c.total
	c.total = &atomic.Int64{} // what is still built for the older mesh goes with it
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

// of returns the resources of a service or workload. If there are too many of all objects,
// those of any are dropped until half are left: they are built again when they are used.
func (c *cache) of(object any) *resourceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total.Load() > maxCached {
		for other, resources := range c.objects { // in any order: none is more likely to be used again
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
