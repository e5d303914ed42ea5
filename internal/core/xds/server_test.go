package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"outrider.dev/test/process"
)

// listen serves on loopback until the test ends, and returns the address.
func listen(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(Codec()))
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t testing.TB, address string) discovery.AggregatedDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return discovery.NewAggregatedDiscoveryServiceClient(conn)
}

type deltaClient = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// open begins a delta stream with a wildcard subscription to clusters, and reads the first message.
func open(t testing.TB, c discovery.AggregatedDiscoveryServiceClient, id string) deltaClient {
	t.Helper()
	stream, err := c.DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: ClusterType})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// until reads messages until a function accepts one.
func until(stream deltaClient, match func(*discovery.DeltaDiscoveryResponse) bool) error {
	for {
		m, err := stream.Recv()
		if err != nil || match(m) {
			return err
		}
	}
}

// hasResource returns a function that reports whether a message contains a resource in a version.
func hasResource(name, version string) func(*discovery.DeltaDiscoveryResponse) bool {
	return func(m *discovery.DeltaDiscoveryResponse) bool {
		for _, r := range m.GetResources() {
			if r.GetName() == name && r.GetVersion() == version {
				return true
			}
		}
		return false
	}
}

func byClaim(source Source) Options { return Options{Source: source, Authenticate: ByClaim} }

func TestManyStreamsAllReachTheNewestSnapshot(t *testing.T) {
	const streams, snapshots = 200, 20
	at := func(n int) Snapshot {
		v := mustSnapshot(t, fmt.Sprint(n), fmt.Sprintf("cds base@%d *\ncds od|a@%d after=eds/a\neds a@%d", n, n, n))
		v.diffs = n%4 > 1 // half of the time the changes are known
		return v
	}
	source := newTestSource(at(0))
	s := New(byClaim(source))
	c := dial(t, listen(t, s))
	var group sync.WaitGroup
	ready := make(chan struct{}, streams)
	for i := range streams {
		group.Go(func() {
			stream, err := c.DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint(i)}, TypeUrl: ClusterType})
			stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: ClusterType, ResourceNamesSubscribe: []string{"od|a"}})
			ready <- struct{}{}
			seen := map[string]string{}
			err = until(stream, func(m *discovery.DeltaDiscoveryResponse) bool {
				for _, r := range m.GetResources() {
					seen[r.GetName()] = r.GetVersion()
				}
				stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()})
				return seen["base"] == fmt.Sprint(snapshots) && seen["od|a"] == fmt.Sprint(snapshots) && seen["a"] == fmt.Sprint(snapshots)
			})
			if err != nil {
				t.Errorf("stream %d saw %v: %v", i, seen, err)
			}
		})
	}
	for n := 1; n <= snapshots; n++ {
		for range streams / snapshots {
			<-ready
		}
		source.set(at(n))
		s.Proxies() // reads the status while all of it changes
	}
	group.Wait()
	if got := s.Counters(); got.Messages == 0 || got.Bytes == 0 || got.SendDuration.Sum == 0 {
		t.Errorf("nothing was counted: %+v", got)
	}
}

func TestSlowClientLosesItsStreamAndDelaysNoOther(t *testing.T) {
	var big strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&big, "cds %d-%s@1 *\n", i, strings.Repeat("x", 1000))
	}
	source := newTestSource(mustSnapshot(t, "1", "cds base@1 *"))
	o := byClaim(source)
	o.SendTimeout = 5 * time.Second
	s := New(o)
	address := listen(t, s)
	slow := open(t, dial(t, address), "slow")
	quick := open(t, dial(t, address), "quick")
	source.set(mustSnapshot(t, "2", "cds base@2 *\n"+big.String()))
	if err := until(quick, hasResource("base", "2")); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the end of the slow client's stream", func() bool { return s.Counters().Streams == 1 })
	if err := until(slow, func(*discovery.DeltaDiscoveryResponse) bool { return false }); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the slow client reads at last, and finds %v; want DeadlineExceeded", err)
	}
	source.set(mustSnapshot(t, "3", "cds base@3 *"))
	if err := until(quick, hasResource("base", "3")); err != nil {
		t.Error(err)
	}
	if got := s.Counters().Timeouts; got != 1 {
		t.Errorf("%d timeouts; want 1", got)
	}
}

// A slowPipe blocks each Send until the test permits it.
type slowPipe struct {
	*pipe[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]
	take chan struct{}
}

func (p slowPipe) Send(m *discovery.DeltaDiscoveryResponse) error {
	select {
	case <-p.take:
		return p.pipe.Send(m)
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func TestSnapshotsAreSkippedWhileASendBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newTestSource(mustSnapshot(t, "1", "cds base@1 *"))
		s := New(byClaim(source))
		ctx, cancel := context.WithCancel(t.Context())
		p := slowPipe{&pipe[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{ctx: ctx, in: make(chan *discovery.DeltaDiscoveryRequest)}, make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- serve(s, p, delta{1 << 20}) }()
		p.in <- &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "x"}, TypeUrl: ClusterType}
		for n := 2; n < 100; n++ {
			source.set(mustSnapshot(t, fmt.Sprint(n), fmt.Sprintf("cds base@%d *", n)))
			synctest.Wait()
		}
		close(p.take)
		synctest.Wait()
		var got []string
		for _, m := range p.taken() {
			got = append(got, renderDelta(m))
		}
		if diff := cmp.Diff([]string{"cds #1 base@1", "cds #2 base@99"}, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the stream ends with %v; want Canceled", err)
		}
	})
}

func TestShutdownEndsStreamsAndRefusesNewOnes(t *testing.T) {
	s := New(byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *"))))
	c := dial(t, listen(t, s))
	stream := open(t, c, "x")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v; want Unavailable", err)
	}
	late, err := c.StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a late stream ends with %v; want Unavailable", err)
	}
	if got := s.Counters().Streams; got != 0 {
		t.Errorf("%d streams are left", got)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
}

func TestShutdownDoesNotWaitLongerThanItMay(t *testing.T) {
	s := New(byClaim(newTestSource(nil)))
	s.running.Add(1) // a stream that does not end
	defer s.running.Done()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no more time")
	cancel(cause)
	if err := s.Shutdown(ctx); !errors.Is(err, cause) {
		t.Errorf("Shutdown: %v; want %v", err, cause)
	}
}

func TestResourcesOfAProxy(t *testing.T) {
	s := New(byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *\nvhds http/x@1"))))
	stream := open(t, dial(t, listen(t, s)), "x")
	stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: VirtualHostType, ResourceNamesSubscribe: []string{"http/x", "http/none"}})
	if err := until(stream, hasResource("http/x", "1")); err != nil {
		t.Fatal(err)
	}
	got, ok := s.Resources("x")
	if !ok {
		t.Fatal("the proxy is unknown")
	}
	var lines []string
	for _, r := range got {
		body := strings.ReplaceAll(string(r.Body), " ", "") // protojson varies its blanks on purpose
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s@%s %s", r.Type, r.Name, r.Version, body)))
	}
	want := []string{
		`Cluster base@1 {"name":"base","altStatName":"1"}`,
		`VirtualHost http/none@absent`,
		`VirtualHost http/x@1 {"name":"http/x","domains":["1"]}`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("Resources (-want +got):\n%s", diff)
	}
	if _, ok := s.Resources("y"); ok {
		t.Error("a proxy that is not connected has resources")
	}
}

// A node that contradicts its identity is refused, and so is one that cannot subscribe on demand.
func TestAdmission(t *testing.T) {
	store := func(context.Context, *core.Node) (Proxy, error) {
		return Proxy{Namespace: "store", ServiceAccount: "shop"}, nil
	}
	broken := func(context.Context, *core.Node) (Proxy, error) {
		return Proxy{}, errors.New("no certificate")
	}
	const world = "state-of-the-world"
	tests := map[string]struct {
		auth     Authenticate
		protocol string
		agent    string
		node     []string
		code     codes.Code
		err      string
	}{
		"itself":                  {store, "delta", "", []string{"sidecar~10.0.0.7~x.store~d", "NAMESPACE=store", "SERVICE_ACCOUNT=shop"}, codes.OK, ""},
		"no claims":               {store, "delta", "", []string{"x"}, codes.OK, ""},
		"another namespace by ID": {store, "delta", "", []string{"sidecar~10.0.0.7~x.bank~d"}, codes.PermissionDenied, `claims "bank", its identity has "store"`},
		"another namespace":       {store, "delta", "", []string{"x", "NAMESPACE=bank"}, codes.PermissionDenied, "node.metadata.NAMESPACE"},
		"another service account": {store, "delta", "", []string{"x", "SERVICE_ACCOUNT=root"}, codes.PermissionDenied, "node.metadata.SERVICE_ACCOUNT"},
		"cannot be authenticated": {broken, "delta", "", []string{"x"}, codes.Unauthenticated, "no certificate"},

		"Istio's agent":                         {store, "delta", "envoy", []string{"x", "ISTIO_VERSION=1.32"}, codes.OK, ""},
		"full push, of an agent before":         {store, "delta", "envoy", []string{"x", "OUTRIDER_PUSH=full", "OUTRIDER_RELAY=true"}, codes.OK, ""},
		"full push":                             {store, "delta", "envoy", []string{"x", "OUTRIDER_PUSH=full"}, codes.InvalidArgument, "node.metadata.OUTRIDER_PUSH"},
		"state of the world, for an Envoy":      {store, world, "envoy", []string{"x"}, codes.InvalidArgument, "api_type: DELTA_GRPC"},
		"state of the world, for a gRPC client": {store, world, "gRPC Go", []string{"x"}, codes.OK, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Source: newTestSource(nil), Authenticate: tt.auth})
			from, err := s.join(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			node := nodeOf(tt.node)
			node.UserAgentName = tt.agent
			_, err = s.admit(t.Context(), from, node, tt.protocol, mustSnapshot(t, "1", ""))
			if status.Code(err) != tt.code || tt.code != codes.OK && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("admit: %v; want %s and %q", err, tt.code, tt.err)
			}
		})
	}
}

// A client has its first configuration when it sends its third request: Envoy's first two are for
// clusters and listeners.
func TestSettledAtTheThirdRequest(t *testing.T) {
	settlesAtTheThird(t, delta{1 << 20}, func(name string) *discovery.DeltaDiscoveryRequest {
		return &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "x"}, TypeUrl: ClusterType, ResourceNamesSubscribe: []string{name}}
	})
	settlesAtTheThird(t, sotw{}, func(name string) *discovery.DiscoveryRequest {
		return &discovery.DiscoveryRequest{Node: &core.Node{Id: "x", UserAgentName: "gRPC Go"}, TypeUrl: ClusterType, ResourceNames: []string{name}}
	})
}

// settlesAtTheThird sends six requests, and expects one call of Settled, at the third.
func settlesAtTheThird[Req discoveryRequest, Resp proto.Message](t *testing.T, d protocol[Req, Resp], request func(name string) Req) {
	synctest.Test(t, func(t *testing.T) {
		settled := 0
		o := byClaim(newTestSource(mustSnapshot(t, "1", "cds base@1 *")))
		o.Settled = func(context.Context) { settled++ }
		ctx, cancel := context.WithCancel(t.Context())
		p := &pipe[Req, Resp]{ctx: ctx, in: make(chan Req)}
		go serve(New(o), p, d)
		for i := range 6 {
			p.in <- request(fmt.Sprint(i))
			synctest.Wait()
			if want := min(1, i/2); settled != want || len(p.taken()) == 0 {
				t.Errorf("%T: after %d requests: settled %d times; want %d, and an answer", d, i+1, settled, want)
			}
		}
		cancel()
		synctest.Wait()
	})
}
