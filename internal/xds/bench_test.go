package xds

import (
	"fmt"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A wideSnapshot has many services; one of them has a version of its own.
type wideSnapshot struct {
	services map[string]*Resource // clusters, by name
	changed  string
	version  string
	diffs    bool // what changed
	old      *wideSnapshot
}

func newWideSnapshot(n int, diffs bool) *wideSnapshot {
	v := &wideSnapshot{services: map[string]*Resource{}, version: "0", diffs: diffs}
	for i := range n {
		name := fmt.Sprintf("od|10.%d.%d.%d:80", i>>16, i>>8&255, i&255)
		v.services[name] = &Resource{Name: name, Version: "0", Body: bodyOf(EndpointType, name, "0")}
	}
	return v
}

// change returns the snapshot in which one service is new.
func (v *wideSnapshot) change(name, version string) *wideSnapshot {
	return &wideSnapshot{services: v.services, changed: name, version: version, diffs: v.diffs, old: v}
}

func (v *wideSnapshot) Version() string { return v.version }

func (v *wideSnapshot) Wildcard(*Proxy, string, []string) []Bundle { return nil }

func (v *wideSnapshot) Named(_ *Proxy, typeURL, name string) Bundle {
	if name == v.changed {
		return Bundle{Resource: &Resource{Name: name, Version: v.version, Body: v.services[name].Body}}
	}
	return Bundle{Resource: v.services[name]}
}

func (v *wideSnapshot) Diff(old Snapshot) (map[string]Change, bool) {
	if !v.diffs || old != Snapshot(v.old) {
		return nil, false
	}
	return map[string]Change{EndpointType: {Names: map[string]struct{}{v.changed: {}}}}, true
}

// BenchmarkChange: 2,000 streams, each with 50 names of 10,000 services. One change, sent
// to all of them or to the 10 that subscribed to it; the time is until the last one has it.
func BenchmarkChange(b *testing.B) {
	for _, bench := range []struct {
		name   string
		shared bool // all streams subscribe to the service that changes
		diffs  bool // the snapshot knows what changed
	}{
		{"to 2000 of 2000, known", true, true},
		{"to 2000 of 2000, compared", true, false},
		{"to 10 of 2000, known", false, true},
		{"to 10 of 2000, compared", false, false},
	} {
		b.Run(bench.name, func(b *testing.B) { benchmarkChange(b, bench.shared, bench.diffs) })
	}
}

func benchmarkChange(b *testing.B, shared, diffs bool) {
	const streams, perStream, services, conns = 2000, 50, 10000, 20
	snapshot := newWideSnapshot(services, diffs)
	all := sortedKeys(snapshot.services)
	source := newTestSource(snapshot)
	s := New(byClaim(source))
	address := listen(b, s)
	users := 10
	if shared {
		users = streams
	}
	var clients []discovery.AggregatedDiscoveryServiceClient
	for range conns {
		clients = append(clients, dial(b, address))
	}
	ready, got := make(chan struct{}, streams), make(chan struct{}, streams)
	for i := range streams {
		var names []string
		for n := range perStream - 1 {
			names = append(names, all[1+(i*37+n*101)%(services-1)])
		}
		if i < users {
			names = append(names, all[0])
		}
		go benchmarkClient(b, clients[i%conns], fmt.Sprint(i), names, ready, got)
	}
	for range streams {
		<-ready
	}
	before := s.Counters()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		snapshot = snapshot.change(all[0], fmt.Sprint(n+1))
		source.set(snapshot)
		for range users {
			<-got
		}
	}
	after := s.Counters()
	b.ReportMetric(float64(after.Bytes-before.Bytes)/float64(b.N), "sent-B/op")
	b.ReportMetric(float64(after.Messages-before.Messages)/float64(b.N), "messages/op")
}

// benchmarkClient subscribes to names, and signals the first message and each later one.
func benchmarkClient(b *testing.B, c discovery.AggregatedDiscoveryServiceClient, id string, names []string, ready, got chan<- struct{}) {
	stream, err := c.DeltaAggregatedResources(b.Context())
	if err != nil {
		b.Error(err)
		return
	}
	stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: EndpointType, ResourceNamesSubscribe: names})
	if _, err := stream.Recv(); err != nil {
		b.Error(err)
	}
	ready <- struct{}{}
	for {
		m, err := stream.Recv()
		if err != nil {
			return // the benchmark is over
		}
		stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
		got <- struct{}{}
	}
}
