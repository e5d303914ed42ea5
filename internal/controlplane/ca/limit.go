package ca

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on the requests of one address. A node that restarts sends one request for each
// of its pods, and each pod has its own address; hosts behind one address share the limit.
const (
	perSecond  = 20
	burst      = 100
	maxLimited = 10_000 // addresses with a limiter
)

// limiters hold a rate limiter for each client address.
type limiters struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]*rate.Limiter
}

func (l *limiters) allow(from netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byAddr == nil {
		l.byAddr = map[netip.Addr]*rate.Limiter{}
	}
	if l.byAddr[from] == nil {
		if len(l.byAddr) >= maxLimited {
			l.evict(now)
		}
		l.byAddr[from] = rate.NewLimiter(perSecond, burst)
	}
	return l.byAddr[from].AllowN(now, 1)
}

// evict removes the limiters that have their full burst again, which are as good as new
// ones. If all are in use it removes all: the memory is bounded.
func (l *limiters) evict(now time.Time) {
	for from, one := range l.byAddr {
		if one.TokensAt(now) >= burst {
			delete(l.byAddr, from)
		}
	}
	if len(l.byAddr) >= maxLimited {
		clear(l.byAddr)
	}
}
