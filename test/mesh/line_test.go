package mesh

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"outrider.dev/internal/core/xds/resource"
)

// A line is an interceptor between the proxies and the control plane. It can delay or drop the control plane's messages.
type line struct{ fault atomic.Pointer[fault] }

type fault struct {
	typeURL string // type of the affected messages; empty: every type
	late    time.Duration
	mute    bool
}

// slow delays the messages of a type, or all messages if typeURL is empty.
func (l *line) slow(d time.Duration, typeURL string) {
	l.fault.Store(&fault{typeURL: typeURL, late: d})
}

// silence drops the messages of a type.
func (l *line) silence(typeURL string) { l.fault.Store(&fault{typeURL: typeURL, mute: true}) }

func (l *line) between(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	d := &delayed{ServerStream: s, line: l, queue: make(chan letter, 1000)}
	go d.deliver()
	return next(srv, d)
}

// delayed is a stream whose messages go over a line.
type delayed struct {
	grpc.ServerStream
	line  *line
	queue chan letter
}

type letter struct {
	message any
	due     time.Time
}

func (d *delayed) SendMsg(m any) error {
	l := letter{m, time.Now()}
	r, delta := m.(*discovery.DeltaDiscoveryResponse)
	if f := d.line.fault.Load(); f != nil && delta && (f.typeURL == "" || f.typeURL == r.TypeUrl) {
		if f.mute {
			return nil
		}
		l.due = l.due.Add(f.late)
	}
	select {
	case d.queue <- l:
		return nil
	case <-d.Context().Done():
		return d.Context().Err()
	}
}

// deliver sends each queued message when it is due. Only deliver sends on the stream.
func (d *delayed) deliver() {
	for {
		select {
		case l := <-d.queue:
			time.Sleep(time.Until(l.due))
			if d.ServerStream.SendMsg(l.message) != nil {
				return
			}
		case <-d.Context().Done():
			return
		}
	}
}

// No connection fails if each message of the control plane is delayed by half of the first-use timeout: the control
// plane sends a service's endpoints together with its cluster, so that a first use waits for the delay only once.
func TestSlowControlPlane(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Second // a second is too short on a busy machine
	s := newShop(t, func(r *resource.Source) { r.FirstUseTimeout = wait })
	s.route("web", "web", 8080)
	s.line.slow(wait/8, "")
	starter := s.pod("starter", "client").proxied()
	s.line.slow(wait/2, "")
	requests := map[string]string{
		"by address":             "http://10.96.0.3:7000/",
		"by route":               "http://10.96.0.1:8080/",
		"by address, IPv6":       "http://[fd96::1]:8081/",
		"to a pod":               "http://" + s.server.v4.String() + ":8083/",
		"to one without a proxy": "http://10.96.0.5:8080/",
	}
	bytes := map[string]string{"bytes": "10.96.0.2:6379", "the server first": "[fd96::2]:3306", "bytes to a pod": "[" + s.server.v6.String() + "]:6380"}
	var all sync.WaitGroup
	for _, p := range []*pod{s.client, starter} {
		for name, url := range requests {
			all.Go(func() {
				if got := get(p.client(), url); !strings.HasPrefix(got, "200 ") {
					t.Errorf("%s, %s: %s", p.name, name, got)
				}
			})
		}
		for name, to := range bytes {
			all.Go(func() {
				if got := p.send(to, "PING"); !strings.HasPrefix(got, "server") {
					t.Errorf("%s, %s: %s", p.name, name, got)
				}
			})
		}
	}
	all.Wait()
}
