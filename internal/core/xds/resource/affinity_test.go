package resource_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// stayers are clients of a service with sessionAffinity: ClientIP.
type stayers struct {
	t        *testing.T
	h        *testMesh
	source   *resource.Source
	versions []map[string]string // of each client's resources, by name
}

// round lets all clients read their endpoints, and returns the number of the endpoint that each of them chooses.
func (s *stayers) round() []string {
	s.t.Helper()
	v, _ := s.source.Current()
	resources, out := map[*xds.Resource]bool{}, []string{}
	for i, has := range s.versions {
		p := as(fmt.Sprint("c-", i))
		p.Has = func(typeURL, name string) string {
			if typeURL != xds.EndpointType {
				s.t.Errorf("versions of %s are used", typeURL)
			}
			return has[name]
		}
		r := v.Named(p, xds.EndpointType, web80).Resource
		has[web80], resources[r] = r.Version, true
		first := ""
		for _, l := range message(s.t, r).(*endpoint.ClusterLoadAssignment).Endpoints {
			if l.Priority == 0 {
				for _, e := range l.LbEndpoints {
					first += strings.TrimPrefix(e.GetEndpoint().Address.GetSocketAddress().Address, "10.244.0.")
				}
			}
		}
		out = append(out, first)
	}
	if most := len(slices.Compact(slices.Sorted(slices.Values(out)))); len(resources) != max(1, most) {
		s.t.Errorf("%d resources for %d choices", len(resources), most)
	}
	return out
}

func newStayers(t *testing.T, clients int) *stayers {
	web := service("web", "web", "10.96.0.1", port(80, mesh.HTTP))
	web.Affinity = true
	s := &stayers{t: t, h: newTestMesh(web), versions: make([]map[string]string, clients)}
	for i := range s.versions {
		s.versions[i] = map[string]string{}
	}
	s.source = resource.New(s.h)
	return s
}

func (s *stayers) add(n int) {
	s.h.builder.Set(pod(fmt.Sprint("web-", n), "web", fmt.Sprint("10.244.0.", n)))
}
func (s *stayers) remove(n int) { s.h.builder.Delete(pod(fmt.Sprint("web-", n), "web", "").Key()) }

// A client stays with its endpoint, whatever others come; if its endpoint goes, it chooses another, and stays there
// when the first one comes back. The clients are spread, and share one resource for each endpoint.
func TestSessionAffinity(t *testing.T) {
	s := newStayers(t, 60)
	if got := s.round(); slices.Max(got) != "" {
		t.Errorf("without endpoints: %q", got)
	}
	s.add(1)
	s.add(2)
	first := s.round()
	count := map[string]int{}
	for _, one := range first {
		count[one]++
	}
	if len(count) != 2 || count["1"] < 15 || count["2"] < 15 {
		t.Errorf("clients by endpoint: %v; want about half at each of the two", count)
	}
	s.add(3)
	if got := s.round(); !slices.Equal(got, first) {
		t.Errorf("an endpoint comes: %q, before %q", got, first)
	}
	fresh := newStayers(t, 60)
	fresh.h = s.h
	fresh.source = s.source
	if got := fresh.round(); !slices.Contains(got, "3") {
		t.Errorf("new clients: %q; want some at the new endpoint", got)
	}
	s.remove(1)
	moved := s.round()
	targets := map[string]bool{}
	for i := range moved {
		switch {
		case first[i] == "2" && moved[i] != "2":
			t.Errorf("client %d left an endpoint that did not go", i)
		case first[i] == "1":
			targets[moved[i]] = true
		}
	}
	if got := slices.Sorted(maps.Keys(targets)); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("clients of an endpoint that went are at %q; want both others", got)
	}
	s.add(1)
	if got := s.round(); !slices.Equal(got, moved) {
		t.Errorf("the endpoint comes back: %q, before %q", got, moved)
	}
}

// Another replica knows the choice by the version alone. A version that names no endpoint of the service is nothing.
func TestClaimedChoices(t *testing.T) {
	s := newStayers(t, 20)
	s.add(1)
	before := s.round()
	s.add(2)
	s.add(3)
	other := newStayers(t, 20)
	other.h, other.source = s.h, resource.New(s.h)
	for i := range other.versions {
		other.versions[i][web80] = s.versions[i][web80]
	}
	if got := other.round(); !slices.Equal(got, before) {
		t.Errorf("at another replica: %q, before %q", got, before)
	}
	unknown := newStayers(t, 20)
	unknown.h, unknown.source = s.h, s.source
	want := unknown.round()
	for _, claim := range []string{"", "@", "x@y", "@10.244.0.9:80", "@10.244.0.1:81", "@10.244.0.1", "@@10.244.0.1:80", "@[::ffff:10.244.0.1]:80"} {
		for i := range unknown.versions {
			unknown.versions[i][web80] = claim
		}
		if got := unknown.round(); !slices.Equal(got, want) {
			t.Errorf("with the version %q: %q, want %q", claim, got, want)
		}
	}
}
