package xds

import (
	"sync/atomic"
	"time"
)

// Counters of a server since its start, except for Streams.
type Counters struct {
	Streams      int64 // open now
	Requests     int64 // ACKs and NACKs included
	Messages     int64
	Bytes        int64 // of messages, before the transport
	Rejected     int64 // NACKs
	Timeouts     int64 // streams that ended because the client did not take a message
	SendDuration Histogram
}

// SendBuckets are upper bounds of send durations. The last bucket of a [Histogram] counts
// the longer ones.
var SendBuckets = [...]time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

// A Histogram counts durations by bucket; not cumulative.
type Histogram struct {
	Buckets [len(SendBuckets) + 1]int64
	Sum     time.Duration
}

type counters struct {
	streams, requests, messages, bytes, rejected, timeouts, nanoseconds atomic.Int64

	buckets [len(SendBuckets) + 1]atomic.Int64
}

func (c *counters) sent(bytes int, took time.Duration) {
	c.messages.Add(1)
	c.bytes.Add(int64(bytes))
	c.nanoseconds.Add(int64(took))
	i := 0
	for i < len(SendBuckets) && took > SendBuckets[i] {
		i++
	}
	c.buckets[i].Add(1)
}

// Counters returns the current counts.
func (s *Server) Counters() Counters {
	c := &s.counters
	out := Counters{
		Streams: c.streams.Load(), Requests: c.requests.Load(), Messages: c.messages.Load(), Bytes: c.bytes.Load(),
		Rejected: c.rejected.Load(), Timeouts: c.timeouts.Load(),
	}
	out.SendDuration.Sum = time.Duration(c.nanoseconds.Load())
	for i := range c.buckets {
		out.SendDuration.Buckets[i] = c.buckets[i].Load()
	}
	return out
}
