package xds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
)

func TestPrewarmCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	shop := Workload{"store", "sa", "shop"}
	c := NewPrewarmCache()
	c.maxWorkloads, c.maxNames = 2, 3
	c.Add(shop, []string{"a", "b", "c"})
	c.Add(shop, []string{"a", "d"}) // a is used again; b is evicted
	if diff := cmp.Diff([]string{"a", "c", "d"}, c.Get(shop)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	c.Add(Workload{}, []string{"a", "a"})
	c.Add(Workload{}, []string{"a"})
	if diff := cmp.Diff([]string{"a"}, c.Get(Workload{})); diff != "" {
		t.Errorf("a name that is added again (-want +got):\n%s", diff)
	}
	c = NewPrewarmCache()
	c.maxWorkloads = 2
	c.Add(shop, []string{"a", "c", "d"})
	second, third := Workload{Name: "2"}, Workload{Name: "3"}
	c.Add(second, []string{"x"})
	c.Get(shop)
	c.Add(third, []string{"y"})
	if got := c.Get(second); got != nil {
		t.Errorf("the least recently used workload is still there: %q", got)
	}
	if len(c.Get(shop)) != 3 || len(c.Get(third)) != 1 {
		t.Error("another workload was evicted")
	}
	c = NewPrewarmCache()
	c.maxOfAccount = 2
	c.Add(shop, []string{"a"})
	for _, name := range []string{"1", "2", "3"} { // a service account chooses the names of its workloads
		c.Add(Workload{Name: name}, []string{"a"})
	}
	if c.Get(Workload{Name: "1"}) != nil || c.Get(Workload{Name: "3"}) == nil || c.Get(shop) == nil {
		t.Error("another workload than the least recently used one of the account was evicted")
	}
}

// A proxy that replaces a proxy with too many clusters does not get these clusters again.
func TestRenewedProxyIsNotPrewarmed(t *testing.T) {
	w := Workload{Namespace: "store", Name: "shop"}
	cache := NewPrewarmCache()
	cache.Add(w, []string{"a"})
	for renewed, want := range map[string]int{"": 1, "true": 0} {
		meta, err := structpb.NewStruct(map[string]any{contract.MetadataRenewed: renewed})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{proxy: &Proxy{Metadata: metadata(meta)}, prewarm: cache, workload: w}
		if got := c.expectedClusters(); len(got) != want {
			t.Errorf("renewed %q: %q, want %d", renewed, got, want)
		}
	}
}
