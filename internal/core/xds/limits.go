package xds

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of one request. A request that exceeds one of them ends the stream with InvalidArgument.
const (
	// maxName limits the name of a resource. Our longest name is "outbound|65535|IPv6|" before a DNS name of 253
	// bytes; other clients may use longer ones.
	maxName = 512
	// maxVersion limits the version of a resource that a client reports from an earlier stream; ours has
	// 16 bytes, and with the endpoint that a client has chosen, "@[" to "]:65535", up to 64.
	maxVersion = 64
	// maxNode limits the size of the whole node, including the labels and annotations of a pod.
	maxNode = 64 << 10
	// maxNodeID allows for kind~address~name.namespace~domain with a name and a domain of 253 bytes.
	maxNodeID = 640
	// maxValue limits a value in the node's metadata that is stored: a workload's name, a directory.
	maxValue = 256
)

// Limits of one stream.
const (
	// firstRequest limits the wait for the first request, which Envoy sends at once.
	firstRequest = 10 * time.Second
	// maxTypes limits the number of types. Envoy uses about a dozen.
	maxTypes = 32
	// bytesPerName limits the average length of a stream's names. The longest names of endpoints that
	// Kubernetes allows have 160 bytes; those of addresses have 30.
	bytesPerName = 128
	// maxReason limits the reason of a NACK in the status. Envoy's reasons have one or two lines.
	maxReason = 1 << 10
)

// Limits of a client if [Options.Streams] is [DefaultStreams]; they grow with that number.
const (
	// workBurst allows for a proxy that uses 10,000 services and reconnects: it names 20,000 resources twice, and
	// all of them are sent to it.
	workBurst = 100_000
	// workRate is the number of names and resources per second that a client may request in the long run. They
	// cost at most a tenth of a processor, because a name takes 10 to 50 us.
	workRate = 2_000
	// A proxy causes a log line when it connects, and another one for a mistake.
	logBurst, logRate = 20, 0.2
)

// atOnce returns the number of a client's streams that may hold a large response at the same time: the proxy's
// current one, and one that remains from a broken network. With 10,000 services, a stream of complete lists that
// the client does not read holds 10 to 20 MiB: a message in the connection, the next one, the rest of the
// response in parts, and the clusters of a proxy with its own directory of secrets. Any other stream holds at
// most the one message in its connection.
func (o Options) atOnce() int { return max(2, o.Streams/4) }

// A request for more than largeRequest resources is large. The number of large requests served at a
// time is limited, so that some processors remain for other requests.
const largeRequest = 500

func largeAtOnce() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// DefaultStreams is the default of [Options.Streams]: a client's current stream, and some that remain from a
// broken network.
const DefaultStreams = 8

// A peer is the state that all streams of one client share, for its limits. [Options.Client] names the client.
type peer struct {
	work, logs *rate.Limiter
	large      chan struct{} // a slot for each large response that is being made or sent

	mu      sync.Mutex
	streams int
	names   int // number of names in all streams of the client
	dropped int // lines not logged since the last logged one
}

// peers contains the peers that have streams, or recently had one.
type peers struct {
	mu  sync.Mutex
	all map[string]*peer
}

// maxPeers limits how many peers without streams are remembered.
const maxPeers = 10_000

// join returns the peer of a new stream.
func (s *Server) join(ctx context.Context) (*peer, error) {
	factor := max(1, s.options.Streams/DefaultStreams)
	fresh := &peer{work: rate.NewLimiter(rate.Limit(factor*workRate), factor*workBurst), logs: rate.NewLimiter(logRate, logBurst), large: make(chan struct{}, s.options.atOnce())}
	if s.options.Client == nil {
		return fresh, nil
	}
	key := s.options.Client(ctx)
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	p := s.peers.all[key]
	if p == nil {
		if len(s.peers.all) >= maxPeers {
			for key, p := range s.peers.all {
				if p.idle() {
					delete(s.peers.all, key)
				}
			}
		}
		p = fresh
		s.peers.all[key] = p
	}
	return p, p.enter(s.options.Streams)
}

func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams == 0
}

func (p *peer) enter(most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams >= most {
		return status.Errorf(codes.ResourceExhausted, "%d streams with this identity from one address are served; see --proxies-per-address", most)
	}
	p.streams++
	return nil
}

func (p *peer) leave(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams--
	if c != nil {
		p.names -= c.counted
	}
}

// room returns how many names a stream may have in total.
func (p *peer) room(c *client) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(c.maxNames, c.maxPeerNames-(p.names-c.counted))
}

// count records how many names a stream has.
func (p *peer) count(c *client, names int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names += names - c.counted
	c.counted = names
}

// slow charges a client for a request, and returns how long its next request has to wait.
func (p *peer) slow(work int) time.Duration {
	return p.work.ReserveN(time.Now(), min(work, p.work.Burst())).Delay()
}

// log writes a line unless the client has caused too many.
func (p *peer) log(to *slog.Logger, level slog.Level, text string, values ...any) {
	if !p.logs.Allow() {
		p.mu.Lock()
		p.dropped++
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	dropped := p.dropped
	p.dropped = 0
	p.mu.Unlock()
	if dropped > 0 {
		values = append(values, "not_logged_before", dropped)
	}
	to.Log(context.Background(), level, text, values...)
}

// checkNames refuses names and versions that are too long to be stored.
func checkNames(change subscriptionChange) error {
	for _, list := range [][]string{change.subscribe, change.unsubscribe} {
		for _, name := range list {
			if len(name) > maxName {
				return tooLong("resource name", name, maxName)
			}
		}
	}
	for name, version := range change.initialVersions { // any order: one error is enough
		switch {
		case len(name) > maxName:
			return tooLong("initial_resource_versions: resource name", name, maxName)
		case len(version) > maxVersion:
			return tooLong("initial_resource_versions: version", version, maxVersion)
		}
	}
	return nil
}

func tooLong(what, text string, most int) error {
	return status.Errorf(codes.InvalidArgument, "%s %.64q... has %d bytes; at most %d are accepted", what, text, len(text), most)
}
