package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
)

// anyone gives all clients the same name.
func anyone(context.Context) string { return "x" }

// outcome sends requests on a new stream, and returns how the stream ended.
func outcome(t *testing.T, c discovery.AggregatedDiscoveryServiceClient, requests ...*discovery.DeltaDiscoveryRequest) error {
	t.Helper()
	stream, err := c.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if stream.Send(r) != nil {
			break // the stream has ended, and Recv will return the reason
		}
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// A client with the longest version that package resource makes may come back.
func TestOwnVersionsAreWithinTheLimit(t *testing.T) {
	version := "0123456789abcdef@" + netip.AddrPortFrom(netip.MustParseAddr(strings.Repeat("ffff:", 7)+"ffff"), 65535).String()
	if err := checkNames(subscriptionChange{initialVersions: map[string]string{"a": version}}); err != nil {
		t.Error(err)
	}
}

func TestRequestOverALimitEndsItsStream(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	metadata := func(key, value string) *core.Node {
		m, err := structpb.NewStruct(map[string]any{key: value})
		if err != nil {
			t.Fatal(err)
		}
		return &core.Node{Id: "x", Metadata: m}
	}
	node := &core.Node{Id: "x"}
	tests := map[string]struct {
		request *discovery.DeltaDiscoveryRequest
		text    string
	}{
		"a name":     {&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: ClusterType, ResourceNamesSubscribe: []string{"a", long}}, "1048576 bytes; at most 512"},
		"an old one": {&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: ClusterType, ResourceNamesUnsubscribe: []string{long}}, "at most 512"},
		"a name that it has": {&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: ClusterType, InitialResourceVersions: map[string]string{long: "1"}},
			"initial_resource_versions: resource name"},
		"a version":   {&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: ClusterType, InitialResourceVersions: map[string]string{"a": long}}, "at most 64"},
		"metadata":    {&discovery.DeltaDiscoveryRequest{Node: metadata("x", long), TypeUrl: ClusterType}, "at most 65536"},
		"an ID":       {&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: long[:1000]}, TypeUrl: ClusterType}, "node.id"},
		"a workload":  {&discovery.DeltaDiscoveryRequest{Node: metadata(contract.MetadataWorkload, long[:300]), TypeUrl: ClusterType}, "node.metadata.WORKLOAD_NAME"},
		"a directory": {&discovery.DeltaDiscoveryRequest{Node: metadata(contract.MetadataCertificates, long[:300]), TypeUrl: ClusterType}, "node.metadata.CERTIFICATES"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := byClaim(newTestSource(mustSnapshot(t, "1", "")))
			o.Log = slog.New(slog.NewJSONHandler(&log, nil))
			s := New(o)
			err := outcome(t, dial(t, listen(t, s)), tt.request)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.text) || len(err.Error()) > 500 {
				t.Errorf("%.500s; want InvalidArgument and %q", err, tt.text)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := s.Counters().Refused; n != 1 || !strings.Contains(log.String(), "stream refused") || log.Len() > 2000 {
				t.Errorf("%d refused; log: %.2000s", n, log.String())
			}
		})
	}
}

func TestStreamsOfAClientAreLimited(t *testing.T) {
	o := byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *")))
	o.Client, o.Streams = anyone, 2
	s := New(o)
	c := dial(t, listen(t, s))
	first := open(t, c, "1")
	open(t, c, "2")
	node := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "3"}, TypeUrl: ClusterType}
	if err := outcome(t, c, node); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 streams with this identity") {
		t.Errorf("%v; want ResourceExhausted and the limit", err)
	}
	first.CloseSend()
	for {
		if _, err := first.Recv(); err != nil {
			break // the stream has ended, and is no longer counted
		}
	}
	open(t, c, "3")
}

func TestSilentStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, snapshot := range map[string]Snapshot{"with": mustSnapshot(t, "1", ""), "without": nil} {
			source := newTestSource(snapshot)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- serve(New(byClaim(source)), silent{ctx}, delta{1}) }()
			if snapshot == nil {
				synctest.Wait()
				source.set(mustSnapshot(t, "1", "")) // a snapshot arrives although the proxy has sent nothing
			}
			if err := <-ended; status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s a snapshot: %v; want DeadlineExceeded", name, err)
			}
			cancel()
			synctest.Wait()
		}
	})
}

// silent is a transport on which no request arrives.
type silent struct{ ctx context.Context }

func (s silent) Context() context.Context { return s.ctx }

func (s silent) RecvMsg(any) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

func (s silent) Send(*discovery.DeltaDiscoveryResponse) error { return nil }

// names returns n different names of the same length.
func names(n, length int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%0*d", length, i))
	}
	return out
}

// subscribe opens a stream, subscribes to names, and reads the answers to all of them. It returns how
// many of the names the server has stored.
func subscribe(t *testing.T, s *Server, c discovery.AggregatedDiscoveryServiceClient, id string, all []string) (deltaClient, int) {
	t.Helper()
	stream, err := c.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: ClusterType, ResourceNamesSubscribe: all})
	answered := 0
	if err := until(stream, func(m *discovery.DeltaDiscoveryResponse) bool {
		answered += len(m.GetResources())
		return answered == len(all)
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Proxies() {
		if p.ID == id {
			return stream, len(p.Types[0].Subscribed)
		}
	}
	return stream, 0
}

// A client at its limit is answered, but little is stored for it.
func TestNamesOfAClientAreLimited(t *testing.T) {
	for name, tt := range map[string]struct{ each, length, want int }{
		"by number":              {1500, 20, 1000},
		"by bytes":               {1000, maxName, 1000 * bytesPerName / maxName},
		"as many as are allowed": {1000, 100, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			o := byClaim(newTestSource(mustSnapshot(t, "1", "")))
			o.Client, o.MaxNames, o.Streams = anyone, 1000, 8
			s := New(o)
			c, total := dial(t, listen(t, s)), 0
			for i := range 4 {
				_, kept := subscribe(t, s, c, fmt.Sprint(i), names(tt.each, tt.length))
				if total += kept; i == 0 && kept != tt.want {
					t.Errorf("%d names are kept; want %d", kept, tt.want)
				}
			}
			if total > 2*o.MaxNames {
				t.Errorf("%d names are kept for a client with 4 streams; want %d at most", total, 2*o.MaxNames)
			}
		})
	}
}

// When a stream ends, its names are no longer counted, so a client that reconnects often keeps its full
// limit.
func TestNamesAreGivenBack(t *testing.T) {
	o := byClaim(newTestSource(mustSnapshot(t, "1", "")))
	o.Client, o.MaxNames = anyone, 10
	s := New(o)
	c := dial(t, listen(t, s))
	for i := range 5 {
		stream, kept := subscribe(t, s, c, fmt.Sprint(i), names(o.MaxNames, 20))
		if kept != o.MaxNames {
			t.Errorf("stream %d keeps %d names; want %d", i, kept, o.MaxNames)
		}
		stream.CloseSend()
		var err error
		for err == nil { // until the stream has ended and is no longer counted
			_, err = stream.Recv()
		}
	}
}

// A client that requests too much has to wait, and other clients do not.
func TestClientThatAsksTooMuchWaits(t *testing.T) {
	one, another := New(Options{}), New(Options{})
	p, _ := one.join(t.Context())
	if wait := p.slow(workBurst / 2); wait > 0 {
		t.Errorf("waits %s within the burst; want none", wait)
	}
	p.slow(workBurst)
	if wait := p.slow(workRate); wait < workBurst/2/workRate {
		t.Errorf("waits %s; want about a second for each %d", wait, workRate)
	}
	q, _ := another.join(t.Context())
	if wait := q.slow(1); wait > 0 {
		t.Errorf("another client waits %s", wait)
	}
}

// Unread responses occupy memory, and for a gRPC client they are complete lists; so their number is
// limited.
func TestStreamsThatAreNotReadHoldTwoLargeResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Source: newTestSource(mustSnapshot(t, "1", "cds base@1 *")), Authenticate: ByClaim, Client: anyone})
		ended := make(chan error, 5)
		stream := func() (slowPipe, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			p := slowPipe{&pipe[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{ctx: ctx, in: make(chan *discovery.DeltaDiscoveryRequest)}, make(chan struct{})}
			go func() { ended <- serve(s, p, delta{1 << 20}) }()
			p.in <- &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "x", UserAgentName: "gRPC Go"}, TypeUrl: ClusterType}
			synctest.Wait()
			return p, cancel
		}
		made := func() (n int) {
			for _, p := range s.Proxies() {
				n += len(p.Types)
			}
			return n
		}
		first, leave := stream()
		_, leaveSecond := stream()
		_, leaveThird := stream()
		_, _ = stream()
		if n := made(); n != 2 {
			t.Fatalf("%d responses are made that no client takes; want 2", n)
		}
		leaveThird() // the third stream ends while it waits for a slot
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("%v; want Canceled", err)
		}
		first.take <- struct{}{}
		synctest.Wait()
		if n := made(); n != 3 {
			t.Errorf("%d responses are made after one was taken; want 3", n)
		}
		_, _ = stream()
		leave()
		leaveSecond()
		synctest.Wait()
		if n := made(); n != 2 {
			t.Errorf("%d responses after two streams left; want those of the two others", n)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A large request waits for a slot without holding its client's lock, and only while the server runs.
func TestALargeRequestWaitsUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *"))))
		for range cap(s.large) {
			s.large <- struct{}{} // another stream is computing
		}
		p := &pipe[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{ctx: t.Context(), in: make(chan *discovery.DeltaDiscoveryRequest)}
		ended := make(chan error, 1)
		go func() { ended <- serve(s, p, delta{1}) }()
		p.in <- &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "1"}, TypeUrl: ClusterType, ResourceNamesSubscribe: names(largeRequest+1, 8)}
		synctest.Wait()
		for _, c := range s.clients {
			if !c.mu.TryLock() {
				t.Fatal("the client is locked while its request waits")
			}
			c.mu.Unlock()
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != errStopping {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

func TestLinesOfAClientAreLimited(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	p, _ := New(Options{}).join(t.Context())
	for range 1000 {
		p.log(log, slog.LevelWarn, "refused", "reason", "\x1b[31m")
	}
	if n := strings.Count(out.String(), "\n"); n < logBurst || n > 2*logBurst || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%d lines; want about %d, without control characters", n, logBurst)
	}
}

func TestClientsWithoutStreamsAreForgotten(t *testing.T) {
	who := ""
	s := New(Options{Client: func(context.Context) string { return who }})
	for i := range 2 * maxPeers {
		who = fmt.Sprint(i)
		p, err := s.join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.leave(nil)
	}
	if n := len(s.peers.all); n > maxPeers {
		t.Errorf("%d clients are remembered; want at most %d", n, maxPeers)
	}
}

func TestLongReasonIsCut(t *testing.T) {
	s := New(byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *"))))
	c := dial(t, listen(t, s))
	stream, err := c.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "x"}, TypeUrl: ClusterType})
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: ClusterType, ResponseNonce: m.GetNonce(), ErrorDetail: status.New(codes.Internal, strings.Repeat("é", 1<<20)).Proto()})
	stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: ClusterType, ResourceNamesSubscribe: []string{"y"}}) // it is answered after the NACK is processed
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if reason := s.Proxies()[0].Types[0].Rejected.Reason; len(reason) > maxReason || !strings.HasPrefix(reason, "é") {
		t.Errorf("%d bytes; want at most %d", len(reason), maxReason)
	}
}
