package mesh_test

import (
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// Endpoints are selected as kube-proxy does.
func TestNearEndpoints(t *testing.T) {
	endpoint := func(name, node, zone, forZones, forNodes string) mesh.Endpoint {
		return mesh.Endpoint{Hostname: name, Node: node, Zone: zone, ForZones: forZones, ForNodes: forNodes}
	}
	plain := []mesh.Endpoint{endpoint("a1", "n1", "a", "", ""), endpoint("a2", "n2", "a", "", ""), endpoint("b", "n3", "b", "", "")}
	hinted := []mesh.Endpoint{endpoint("a", "n1", "a", "a,", "n1,"), endpoint("b", "n2", "b", "b,c,", "n2,"), endpoint("x", "n3", "b", "b,", "n3,")}
	partly := []mesh.Endpoint{endpoint("a", "n1", "a", "a,", ""), endpoint("b", "n2", "b", "", "")}
	for name, tt := range map[string]struct {
		traffic   mesh.Traffic
		endpoints []mesh.Endpoint
		at        mesh.Place
		want      string // names of the selected endpoints; all: there is no preference
		relevant  mesh.Place
	}{
		"only the node":                   {mesh.OnlyNode, plain, mesh.Place{Node: "n2", Zone: "a"}, "a2", mesh.Place{Node: "n2"}},
		"only a node without an endpoint": {mesh.OnlyNode, plain, mesh.Place{Node: "n9", Zone: "a"}, "", mesh.Place{}},
		"only a node that is not known":   {mesh.OnlyNode, []mesh.Endpoint{endpoint("x", "", "a", "", "")}, mesh.Place{Zone: "a"}, "", mesh.Place{}},
		"only the node, whatever hints":   {mesh.OnlyNode, hinted, mesh.Place{Node: "n2", Zone: "c"}, "b", mesh.Place{Node: "n2"}},
		"no preference":                   {"", plain, mesh.Place{Node: "n1", Zone: "a"}, "all", mesh.Place{}},
		"the same zone":                   {mesh.SameZone, plain, mesh.Place{Node: "n1", Zone: "a"}, "a1 a2", mesh.Place{Zone: "a"}},
		"none in the zone":                {mesh.SameZone, plain, mesh.Place{Node: "n9", Zone: "z"}, "all", mesh.Place{}},
		"the zone is not known":           {mesh.SameZone, plain, mesh.Place{}, "all", mesh.Place{}},
		"the same node":                   {mesh.SameNode, plain, mesh.Place{Node: "n2", Zone: "a"}, "a2", mesh.Place{Node: "n2", Zone: "a"}},
		"none on the node":                {mesh.SameNode, plain, mesh.Place{Node: "n9", Zone: "a"}, "a1 a2", mesh.Place{Zone: "a"}},
		"hints for a zone":                {"", hinted, mesh.Place{Zone: "c"}, "b", mesh.Place{Zone: "c"}},
		"hints for a node":                {"", hinted, mesh.Place{Node: "n3", Zone: "b"}, "x", mesh.Place{Node: "n3", Zone: "b"}},
		"a zone without a hint":           {mesh.SameZone, hinted, mesh.Place{Zone: "z"}, "all", mesh.Place{}},
		"an endpoint without a hint":      {"", partly, mesh.Place{Zone: "a"}, "all", mesh.Place{Zone: "a"}},
		"the name of a zone in another's": {"", []mesh.Endpoint{endpoint("a", "", "", "west-a,", "")}, mesh.Place{Zone: "a"}, "all", mesh.Place{}},
	} {
		s := &mesh.Service{Traffic: tt.traffic, Endpoints: tt.endpoints, OnNode: mesh.ByNode(tt.endpoints)}
		got := "all"
		all := s.Reachable(tt.at)
		if near := s.Near(all, tt.at); near != nil || len(all) < len(tt.endpoints) {
			var names []string
			for _, e := range all {
				if near == nil || near(e) {
					names = append(names, e.Hostname)
				}
			}
			got = strings.Join(names, " ")
		}
		if relevant := s.Relevant(tt.at); got != tt.want || relevant != tt.relevant {
			t.Errorf("%s: %s, %+v; want %s, %+v", name, got, relevant, tt.want, tt.relevant)
		}
	}
}
