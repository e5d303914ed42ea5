package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// words are the types in the texts of tests.
var words = map[string]string{
	"cds": ClusterType, "eds": EndpointType, "lds": ListenerType, "rds": RouteType, "vhds": VirtualHostType,
	"other": TypePrefix + "outrider.test.Other",
}

func wordOf(typeURL string) string {
	for word, t := range words {
		if t == typeURL {
			return word
		}
	}
	return typeURL
}

// A textView is a view written as lines:
//
//	cds  base@1 *                       told without a name
//	cds  od|a@1 behind=eds/a            by name, with what belongs to it
//	cds  od|b@1 wanted                  without a name to those that are expected to ask for it
//	vhds rc/svc@1 asked=rc/x,rc/y before=cds/od|a
//	vhds rc/none none                   known to be nothing
type textView struct {
	version string
	entries map[key]*entry
	asked   map[key]*entry
	order   []*entry
}

type key struct{ typeURL, name string }

type entry struct {
	key
	resource       *Resource
	all, wanted    bool
	before, behind []key
	text           string
}

func parseView(version, text string) (*textView, error) {
	v := &textView{version: version, entries: map[key]*entry{}, asked: map[key]*entry{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		typeURL, ok := words[f[0]]
		if !ok || len(f) < 2 {
			return nil, fmt.Errorf("view %s: %q: want a type and a name", version, line)
		}
		e, err := parseEntry(v, typeURL, f[1], f[2:])
		if err != nil {
			return nil, fmt.Errorf("view %s: %q: %w", version, line, err)
		}
		e.text = line
		v.entries[e.key] = e
		v.order = append(v.order, e)
	}
	return v, nil
}

func parseEntry(v *textView, typeURL, named string, rest []string) (*entry, error) {
	name, version, _ := strings.Cut(named, "@")
	e := &entry{key: key{typeURL, name}, resource: &Resource{Name: name, Version: version}}
	e.resource.Body = bodyOf(typeURL, name, version)
	for _, word := range rest {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "*":
			e.all = true
		case "wanted":
			e.wanted = true
		case "none":
			e.resource.Body = nil
		case "asked":
			for a := range strings.SplitSeq(value, ",") {
				v.asked[key{typeURL, a}] = e
			}
		case "before":
			e.before = keysOf(value)
		case "behind":
			e.behind = keysOf(value)
		default:
			return nil, fmt.Errorf("%q is no option", option)
		}
	}
	return e, nil
}

func keysOf(list string) (out []key) {
	for one := range strings.SplitSeq(list, ",") {
		word, name, _ := strings.Cut(one, "/")
		out = append(out, key{words[word], name})
	}
	return out
}

// bodyOf is a small real resource that differs by version.
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

func (v *textView) Version() string { return v.version }

func (v *textView) All(_ *Proxy, typeURL string, wanted []string) (out []Answer) {
	for _, e := range v.order {
		if e.typeURL == typeURL && (e.all || e.wanted && slices.Contains(wanted, e.name)) {
			out = append(out, v.answer(e))
		}
	}
	return out
}

func (v *textView) Named(_ *Proxy, typeURL, name string) Answer {
	k := key{typeURL, name}
	if e := v.entries[k]; e != nil {
		return v.answer(e)
	}
	if e := v.asked[k]; e != nil {
		return v.answer(e)
	}
	return Answer{}
}

func (v *textView) answer(e *entry) Answer {
	need := func(keys []key) (out []Needed) {
		for _, k := range keys {
			out = append(out, Needed{k.typeURL, v.entries[k].resource})
		}
		return out
	}
	return Answer{Resource: e.resource, Before: need(e.before), Behind: need(e.behind)}
}

// A differView is the same and says what changed.
type differView struct{ *textView }

func (v *differView) Since(old View) (map[string]Change, bool) {
	o, ok := old.(*differView)
	if !ok {
		return nil, false
	}
	out := map[string]Change{}
	touch := func(k key, all, every bool) {
		c := out[k.typeURL]
		c.Every = c.Every || every
		if c.Names == nil {
			c.Names = map[string]struct{}{}
		}
		if !every {
			c.Names[k.name] = struct{}{}
		}
		c.All = c.All || all
		out[k.typeURL] = c
	}
	for _, pair := range [][2]*textView{{v.textView, o.textView}, {o.textView, v.textView}} {
		for k, e := range pair[0].entries {
			other := pair[1].entries[k]
			if other == nil || other.text != e.text {
				touch(k, e.all || e.wanted, other == nil)
			}
		}
		for k, e := range pair[0].asked {
			if other := pair[1].asked[k]; other == nil || other.name != e.name {
				touch(k, false, false)
			}
		}
	}
	return out, true
}

// A stage is a source whose view a test sets.
type stage struct {
	mu    sync.Mutex
	view  View
	newer chan struct{}
}

func newStage(v View) *stage { return &stage{view: v, newer: make(chan struct{})} }

func (s *stage) Current() (View, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view, s.newer
}

func (s *stage) set(v View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = v
	close(s.newer)
	s.newer = make(chan struct{})
}

// mustView is a view of lines.
func mustView(t testing.TB, version, text string) *textView {
	t.Helper()
	v, err := parseView(version, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sortedKeys of a map, for output.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
