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

// Limits of one request. A longer one ends the stream with InvalidArgument.
const (
	// maxName is of a resource: the longest of ours is "outbound|65535|IPv6|" before a DNS
	// name of 253 bytes, and leaves room for other clients' names.
	maxName = 512
	// maxVersion is of a resource that a client has from an earlier stream; ours have 16 bytes.
	maxVersion = 64
	// maxNode is of the whole node, with the labels and annotations of a pod.
	maxNode = 64 << 10
	// maxNodeID is kind~address~name.namespace~domain with a name and a domain of 253 bytes.
	maxNodeID = 640
	// maxValue is of a value in the node's metadata that is kept: a workload's name, a directory.
	maxValue = 256
)

// Limits of one stream.
const (
	// firstRequest bounds the wait for the first request: Envoy sends it at once.
	firstRequest = 10 * time.Second
	// maxTypes bounds the types. Envoy uses about a dozen.
	maxTypes = 32
	// bytesPerName is, on the average, of the names of a stream. The longest that Kubernetes
	// has for endpoints are 160; those of addresses are 30.
	bytesPerName = 128
	// maxReason is of a NACK, which the status shows. Envoy's have a line or two.
	maxReason = 1 << 10
)

// Limits of a client, for [DefaultStreams]; of more streams they are more.
const (
	// A proxy that uses 10,000 services and connects again names 20,000 resources twice, and
	// is sent them.
	workBurst = 100_000
	// workRate costs a tenth of a processor: a name takes 10 to 50 us.
	workRate = 2_000
	// A proxy logs when it connects, and once for a mistake.
	logBurst, logRate = 20, 0.2
)

// atOnce is how many streams of a client may have the most at a time: that of the proxy, and one
// that a broken network has left. At 10,000 services a stream with full push that is not read
// holds 10 to 20 MiB: a message in the connection, the next one, the rest of the response in
// parts, and for a proxy with a directory of its own its clusters. A stream that is not among
// these has at most the one message in its connection.
func (o Options) atOnce() int { return max(2, o.Streams/4) }

// A request of more than largeRequest resources is large. Of these only so many are served
// at a time that some processors are left for the others.
const largeRequest = 500

func largeAtOnce() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// DefaultStreams is how many streams a client may have: one, and those that a broken network
// has left.
const DefaultStreams = 8

// A peer is a client by [Options.Client]: its streams share limits.
type peer struct {
	work, logs *rate.Limiter
	large      chan struct{} // a place for each large response that is made or not yet taken

	mu      sync.Mutex
	streams int
	names   int // of all streams
	dropped int // lines not logged since the last one
}

// peers are those with streams, and those that had one recently.
type peers struct {
	mu  sync.Mutex
	all map[string]*peer
}

// maxPeers bounds the clients whose limits are remembered after their streams.
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

// room returns how many names a stream may have that has some already.
func (p *peer) room(c *client) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(c.maxNames, c.maxPeerNames-(p.names-c.counted))
}

// count notes how many names a stream has.
func (p *peer) count(c *client, names int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names += names - c.counted
	c.counted = names
}

// slow charges a client for a request, and returns how long its next one has to wait.
func (p *peer) slow(work int) time.Duration {
	return p.work.ReserveN(time.Now(), min(work, p.work.Burst())).Delay()
}

// log writes a line unless the client causes too many.
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

// checkNames refuses names, and versions, that are too long to be kept.
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
