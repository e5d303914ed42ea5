package xds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options of a server. The zero value of a field means its default.
type Options struct {
	Source       Source       // required
	Authenticate Authenticate // required; ByClaim for plaintext

	Prewarm *PrewarmCache // default: a new cache
	Log     *slog.Logger  // default: nothing is logged

	// Client names the client of a stream; streams with the same name share limits. By default each stream counts
	// as a client of its own.
	Client func(context.Context) string
	// Streams limits the number of a client's streams; default [DefaultStreams].
	Streams int
	// Settled is called once for each stream, when its client has its first configuration. It may be
	// nil.
	Settled func(context.Context)

	SendTimeout time.Duration // for one message; default 30s
	// MaxNames limits the subscriptions of one stream. A name beyond it gets its resource, but no
	// updates. Default 20,000, for which Envoy itself needs 360 MiB or more.
	MaxNames int
	// MaxMessage limits a message with several resources, for delta only; default 2 MiB.
	MaxMessage int
}

// A Server serves the aggregated discovery service.
type Server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	options Options
	log     *slog.Logger
	diffs   diffCache
	peers   peers
	large   chan struct{} // a slot for each large request that is served

	stop    chan struct{} // closed by Shutdown
	running sync.WaitGroup
	ids     atomic.Uint64

	counting sync.Mutex // guards counters
	counters Counters

	mu      sync.Mutex // guards the fields below; taken when a stream begins or ends
	stopped bool
	clients map[uint64]*client
}

// New returns a server, to be passed to discovery.RegisterAggregatedDiscoveryServiceServer.
func New(o Options) *Server {
	if o.Prewarm == nil {
		o.Prewarm = NewPrewarmCache()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Settled == nil {
		o.Settled = func(context.Context) {}
	}
	o.Streams = cmp.Or(o.Streams, DefaultStreams)
	o.SendTimeout = cmp.Or(o.SendTimeout, 30*time.Second)
	o.MaxNames = cmp.Or(o.MaxNames, 20000)
	o.MaxMessage = cmp.Or(o.MaxMessage, 2<<20)
	return &Server{options: o, log: o.Log, stop: make(chan struct{}), clients: map[uint64]*client{}, peers: peers{all: map[string]*peer{}}, large: make(chan struct{}, largeAtOnce())}
}

// DeltaAggregatedResources serves one delta stream.
func (s *Server) DeltaAggregatedResources(w discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return serve(s, w, delta{s.options.MaxMessage})
}

// StreamAggregatedResources serves one state-of-the-world stream.
func (s *Server) StreamAggregatedResources(w discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return serve(s, w, sotw{})
}

// errStopping makes a proxy reconnect, to another replica.
var errStopping = status.Error(codes.Unavailable, "the control plane is stopping")

// Shutdown ends all streams and waits for their end, at most until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ending the streams of proxies: %w", context.Cause(ctx))
	}
}

// enter counts a new stream. It returns false if the server is stopping.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Add(1)
	}
	return !s.stopped
}

// admit authenticates the client of a stream.
func (s *Server) admit(ctx context.Context, from *peer, node *core.Node, protocol string, snapshot Snapshot) (*client, error) {
	if err := checkNode(node); err != nil {
		return nil, err
	}
	identity, err := s.options.Authenticate(ctx, node)
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		return nil, status.Errorf(codes.Unauthenticated, "authenticating the proxy %q: %v", node.GetId(), err)
	}
	proxy, workload, err := describe(identity, node, protocol)
	if err != nil {
		return nil, err
	}
	c := &client{
		id: s.ids.Add(1), protocol: protocol, proxy: proxy, workload: workload, since: time.Now(),
		prewarm: s.options.Prewarm, peer: from,
		maxNames: s.options.MaxNames, maxPeerNames: s.options.MaxNames * s.options.atOnce(),
		snapshot: snapshot, types: map[string]*subscription{},
	}
	proxy.Has = func(typeURL, name string) string {
		if sub := c.types[typeURL]; sub != nil {
			return sub.sent[name]
		}
		return ""
	}
	s.mu.Lock()
	s.clients[c.id] = c
	s.mu.Unlock()
	s.count(func(c *Counters) { c.Streams++ })
	from.log(s.log, slog.LevelInfo, "proxy connected", "proxy", proxy.ID, "namespace", proxy.Namespace, "serviceAccount", proxy.ServiceAccount, "protocol", protocol)
	return c, nil
}

func (s *Server) leave(c *client) {
	s.mu.Lock()
	delete(s.clients, c.id)
	s.mu.Unlock()
	s.count(func(c *Counters) { c.Streams-- })
	c.peer.log(s.log, slog.LevelInfo, "proxy disconnected", "proxy", c.proxy.ID, "after", time.Since(c.since))
}

// checkType refuses a malformed type URL. A type that no snapshot has is valid, and its response is
// empty.
func checkType(typeURL string) error {
	name, ok := strings.CutPrefix(typeURL, TypePrefix)
	if !ok || name == "" || len(name) > 200 {
		return status.Errorf(codes.InvalidArgument, "type_url: %.200q; must be %s and the name of a message", typeURL, TypePrefix)
	}
	return nil
}

// shortType returns the last part of a type URL, for logs and the status.
func shortType(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
