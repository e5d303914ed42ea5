package ca

import (
	"net/netip"
	"sync"
	"time"
)

// Limits on requests of one address. A node that comes back asks once for each of its
// pods, and each pod has its address; hosts behind one address share.
const (
	perSecond  = 20
	burst      = 100
	maxBuckets = 10_000
)

// A limiter lets each address have a burst, and then so many each second.
type limiter struct {
	mu      sync.Mutex
	buckets map[netip.Addr]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// take says whether from may go on.
func (l *limiter) take(from netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buckets == nil {
		l.buckets = map[netip.Addr]*bucket{}
	}
	b, ok := l.buckets[from]
	if !ok {
		if len(l.buckets) >= maxBuckets {
			l.forget(now)
		}
		b = &bucket{left: burst, at: now}
		l.buckets[from] = b
	}
	b.left = min(burst, b.left+max(0, now.Sub(b.at).Seconds())*perSecond)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// forget drops the buckets that are full again: they are as good as none. If there are
// none, all go: the memory is bounded whoever comes.
func (l *limiter) forget(now time.Time) {
	for from, b := range l.buckets {
		if now.Sub(b.at).Seconds()*perSecond+b.left >= burst {
			delete(l.buckets, from)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}
