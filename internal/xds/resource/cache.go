package resource

import (
	"sync"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// A resourceCache has built resources, by a key that holds all that they depend on.
type resourceCache struct {
	mu        sync.Mutex
	resources map[any]*xds.Resource
}

// get returns the resource of a key, which build makes the first time.
func (c *resourceCache) get(key any, build func() *xds.Resource) *xds.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.resources[key]
	if !ok {
		r = build()
		if c.resources == nil {
			c.resources = map[any]*xds.Resource{}
		}
		c.resources[key] = r
	}
	return r
}

// A cache has a resourceCache for each service and workload that something was built for,
// and one for resources that depend on no object.
type cache struct {
	mu      sync.Mutex
	objects map[any]*resourceCache // by *mesh.Service or *mesh.Workload
	shared  *resourceCache
}

func newCache() *cache {
	return &cache{objects: map[any]*resourceCache{}, shared: &resourceCache{}}
}

// carryOver returns a cache for a newer mesh, without the objects that changed. Its cost
// goes with what was built, not with the mesh.
func (c *cache) carryOver(m *mesh.Mesh) *cache {
	out := newCache()
	c.mu.Lock()
	defer c.mu.Unlock()
	out.shared = c.shared
	for object, resources := range c.objects {
		if unchanged(m, object) {
			out.objects[object] = resources
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

// of returns the resources of a service or workload.
func (c *cache) of(object any) *resourceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.objects[object]
	if r == nil {
		r = &resourceCache{}
		c.objects[object] = r
	}
	return r
}
