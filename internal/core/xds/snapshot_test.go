package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// typeNames are abbreviations of types.
var typeNames = map[string]string{
	"cds": ClusterType, "eds": EndpointType, "lds": ListenerType, "rds": RouteType, "vhds": VirtualHostType,
	"other": TypePrefix + "outrider.test.Other",
}

func abbreviation(typeURL string) string {
	for word, t := range typeNames {
		if t == typeURL {
			return word
		}
	}
	return typeURL
}

// A textSnapshot is written as lines:
//
//	cds  base@1 *                       in the wildcard
//	cds  od|a@1 after=eds/a             by name, with its endpoints
//	cds  od|a@1 chosen=eds/a            the same; these depend on the version that the client has
//	cds  od|b@1 prewarm                 in the wildcard of clients that are expected to subscribe
//	vhds rc/svc@1 before=cds/od|a
//	vhds rc/none none                   without a body
//	away a                              what Away returns
//	cds  od|c@1 hold=500ms              its first response waits for a change
type textSnapshot struct {
	version string
	diffs   bool // Diff knows the changes since another snapshot, if that has diffs too
	entries map[key]*entry
	order   []*entry
	away    []byte
}

func (v *textSnapshot) Away() []byte { return v.away }

type key struct{ typeURL, name string }

type entry struct {
	key
	resource      *Resource
	all, prewarm  bool
	before, after []key
	chosen        bool // what comes after depends on what the client has
	hold          time.Duration
	text          string
}

func parseSnapshot(version, text string) (*textSnapshot, error) {
	v := &textSnapshot{version: version, entries: map[key]*entry{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if f[0] == "away" {
			v.away = []byte(f[1])
			continue
		}
		typeURL, ok := typeNames[f[0]]
		if !ok || len(f) < 2 {
			return nil, fmt.Errorf("snapshot %s: %q: want a type and a name", version, line)
		}
		e, err := parseEntry(v, typeURL, f[1], f[2:])
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %q: %w", version, line, err)
		}
		e.text = line
		v.entries[e.key] = e
		v.order = append(v.order, e)
	}
	return v, nil
}

func parseEntry(v *textSnapshot, typeURL, named string, rest []string) (*entry, error) {
	name, version, _ := strings.Cut(named, "@")
	e := &entry{key: key{typeURL, name}, resource: &Resource{Name: name, Version: version}}
	e.resource.Body = bodyOf(typeURL, name, version)
	for _, word := range rest {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "*":
			e.all = true
		case "prewarm":
			e.prewarm = true
		case "none":
			e.resource.Body = nil
		case "before":
			e.before = keysOf(value)
		case "hold":
			var err error
			if e.hold, err = time.ParseDuration(value); err != nil {
				return nil, err
			}
		case "after", "chosen":
			e.after, e.chosen = keysOf(value), option == "chosen"
		default:
			return nil, fmt.Errorf("%q is no option", option)
		}
	}
	return e, nil
}

func keysOf(list string) (out []key) {
	for one := range strings.SplitSeq(list, ",") {
		word, name, _ := strings.Cut(one, "/")
		out = append(out, key{typeNames[word], name})
	}
	return out
}

// bodyOf returns a small real resource that depends on the version.
func bodyOf(typeURL, name, version string) *anypb.Any {
	var m proto.Message
	switch typeURL {
	case ClusterType:
		m = &cluster.Cluster{Name: name, AltStatName: version}
	case EndpointType:
		m = &endpoint.ClusterLoadAssignment{ClusterName: name, NamedEndpoints: map[string]*endpoint.Endpoint{version: {}}}
	case ListenerType:
		m = &listener.Listener{Name: name, StatPrefix: version}
	case RouteType:
		m = &route.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{version}}
	default:
		m = &route.VirtualHost{Name: name, Domains: []string{version}}
	}
	body, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return body
}

func (v *textSnapshot) Version() string { return v.version }

func (v *textSnapshot) Notes(*Proxy, []string, []string) []string { return nil }

func (v *textSnapshot) Wildcard(_ *Proxy, typeURL string, prewarm []string) (out []Bundle) {
	for _, e := range v.order {
		if e.typeURL == typeURL && (e.all || e.prewarm && slices.Contains(prewarm, e.name)) {
			out = append(out, v.bundle(e))
		}
	}
	return out
}

func (v *textSnapshot) Named(_ *Proxy, typeURL, name string) Bundle {
	k := key{typeURL, name}
	if e := v.entries[k]; e != nil {
		return v.bundle(e)
	}
	return Bundle{}
}

func (v *textSnapshot) bundle(e *entry) Bundle {
	need := func(keys []key) (out []Dependency) {
		for _, k := range keys {
			out = append(out, Dependency{Type: k.typeURL, Resource: v.entries[k].resource})
		}
		return out
	}
	after := need(e.after)
	for i := range after {
		after[i].Chosen = e.chosen
	}
	return Bundle{Resource: e.resource, Service: true, Hold: e.hold, Before: need(e.before), After: after}
}

func (v *textSnapshot) Diff(old Snapshot) (map[string]Change, bool) {
	o := old.(*textSnapshot)
	if !v.diffs || !o.diffs {
		return nil, false
	}
	out := map[string]Change{}
	add := func(k key, wildcard, allNames bool) {
		c := out[k.typeURL]
		c.AllNames = c.AllNames || allNames
		if c.Names == nil {
			c.Names = map[string]struct{}{}
		}
		if !allNames {
			c.Names[k.name] = struct{}{}
		}
		c.Wildcard = c.Wildcard || wildcard
		out[k.typeURL] = c
	}
	for _, pair := range [][2]*textSnapshot{{v, o}, {o, v}} {
		for k, e := range pair[0].entries {
			other := pair[1].entries[k]
			if other == nil || other.text != e.text {
				add(k, e.all || e.prewarm, other == nil)
			}
		}
	}
	return out, true
}

// A testSource provides the snapshot that a test has set.
type testSource struct {
	mu       sync.Mutex
	snapshot Snapshot
	newer    chan struct{}
}

func newTestSource(v Snapshot) *testSource {
	return &testSource{snapshot: v, newer: make(chan struct{})}
}

func (s *testSource) Current() (Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.newer
}

func (s *testSource) set(v Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = v
	close(s.newer)
	s.newer = make(chan struct{})
}

func mustSnapshot(t testing.TB, version, text string) *textSnapshot {
	t.Helper()
	v, err := parseSnapshot(version, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sortedKeys sorts the keys of a map, for output.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
