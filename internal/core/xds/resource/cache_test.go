package resource

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
)

// megabyte returns a resource with a size of one megabyte.
func megabyte() *xds.Resource {
	return &xds.Resource{Name: "x", Body: &anypb.Any{Value: []byte(strings.Repeat("x", 1<<20))}}
}

func (c *cache) size() (n int64) {
	for _, r := range c.objects {
		n += r.bytes
	}
	return n
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	for i := range 200 {
		c.of(i).get("x", megabyte)
		c.shared.get(i, megabyte)
		if n := c.size(); n > maxCached+2<<20 || n != c.total.Load() {
			t.Fatalf("%d bytes of objects, counted as %d; want at most %d", n, c.total.Load(), maxCached)
		}
		if c.shared.bytes > maxCached {
			t.Fatalf("%d bytes of shared resources; want at most %d", c.shared.bytes, maxCached)
		}
	}
	if len(c.objects) < maxCached>>21 {
		t.Errorf("%d objects are left; want at least half of what fits", len(c.objects))
	}
}

// Resources that an older snapshot still builds do not count for the newer one.
func TestCarriedCacheCountsItsOwn(t *testing.T) {
	b := build.New(mesh.Config{})
	b.Set(&mesh.ServiceSpec{Name: "kept", Namespace: "a"}, &mesh.ServiceSpec{Name: "gone", Namespace: "a"})
	before := b.Mesh()
	kept, gone := before.ByName("a", "kept"), before.ByName("a", "gone")
	old := newCache()
	old.of(kept).get("x", megabyte)
	stale := old.of(gone)
	stale.get("x", megabyte)
	b.Delete((&mesh.ServiceSpec{Name: "gone", Namespace: "a"}).Key())
	c := old.carryOver(b.Mesh())
	stale.get("y", megabyte)
	old.of("another").get("x", megabyte)
	if n := cost(megabyte()); c.size() != n || c.total.Load() != n {
		t.Errorf("%d bytes, counted as %d; want the %d of the service that is left", c.size(), c.total.Load(), n)
	}
}
