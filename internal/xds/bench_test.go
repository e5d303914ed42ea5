package xds

import (
	"fmt"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A wideView has many services; one of them has a version of its own.
type wideView struct {
	services map[string]*Resource // clusters, by name
	changed  string
	version  string
	knows    bool // what changed
	old      *wideView
}

func newWideView(n int, knows bool) *wideView {
	v := &wideView{services: map[string]*Resource{}, version: "0", knows: knows}
	for i := range n {
		name := fmt.Sprintf("od|10.%d.%d.%d:80", i>>16, i>>8&255, i&255)
		v.services[name] = &Resource{Name: name, Version: "0", Body: bodyOf(EndpointType, name, "0")}
	}
	return v
}

// change returns the view in which one service is new.
func (v *wideView) change(name, version string) *wideView {
	return &wideView{services: v.services, changed: name, version: version, knows: v.knows, old: v}
}

func (v *wideView) Version() string { return v.version }

func (v *wideView) All(*Proxy, string, []string) []Answer { return nil }

func (v *wideView) Named(_ *Proxy, typeURL, name string) Answer {
	if name == v.changed {
		return Answer{Resource: &Resource{Name: name, Version: v.version, Body: v.services[name].Body}}
	}
	return Answer{Resource: v.services[name]}
}

func (v *wideView) Since(old View) (map[string]Change, bool) {
	if !v.knows || old != View(v.old) {
		return nil, false
	}
	return map[string]Change{EndpointType: {Names: map[string]struct{}{v.changed: {}}}}, true
}

// BenchmarkChange: 2,000 streams, each with 50 names of 10,000 services. One change, told
// to all of them or to the 10 that asked for it; the time is until the last one has it.
func BenchmarkChange(b *testing.B) {
	for _, bench := range []struct {
		name   string
		shared bool // all streams ask for the service that changes
		knows  bool // the view says what changed
	}{
		{"to 2000 of 2000, known", true, true},
		{"to 2000 of 2000, compared", true, false},
		{"to 10 of 2000, known", false, true},
		{"to 10 of 2000, compared", false, false},
	} {
		b.Run(bench.name, func(b *testing.B) { benchmarkChange(b, bench.shared, bench.knows) })
	}
}

func benchmarkChange(b *testing.B, shared, knows bool) {
	const streams, names, services, conns = 2000, 50, 10000, 20
	view := newWideView(services, knows)
	all := sortedKeys(view.services)
	source := newStage(view)
	s := New(byClaim(source))
	address := listen(b, s)
	told := 10
	if shared {
		told = streams
	}
	var clients []discovery.AggregatedDiscoveryServiceClient
	for range conns {
		clients = append(clients, dial(b, address))
	}
	ready, got := make(chan struct{}, streams), make(chan struct{}, streams)
	for i := range streams {
		var asked []string
		for n := range names - 1 {
			asked = append(asked, all[1+(i*37+n*101)%(services-1)])
		}
		if i < told {
			asked = append(asked, all[0])
		}
		go benchmarkClient(b, clients[i%conns], fmt.Sprint(i), asked, ready, got)
	}
	for range streams {
		<-ready
	}
	before := s.Counters()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		view = view.change(all[0], fmt.Sprint(n+1))
		source.set(view)
		for range told {
			<-got
		}
	}
	after := s.Counters()
	b.ReportMetric(float64(after.Bytes-before.Bytes)/float64(b.N), "sent-B/op")
	b.ReportMetric(float64(after.Messages-before.Messages)/float64(b.N), "messages/op")
}

// benchmarkClient asks for names, and says when it has them, and when it hears more.
func benchmarkClient(b *testing.B, c discovery.AggregatedDiscoveryServiceClient, id string, asked []string, ready, got chan<- struct{}) {
	stream, err := c.DeltaAggregatedResources(b.Context())
	if err != nil {
		b.Error(err)
		return
	}
	stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: EndpointType, ResourceNamesSubscribe: asked})
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
