package xds

import "time"

// Counters of a server since its start, except for Streams.
type Counters struct {
	Streams      int64 // open now
	Requests     int64 // ACKs and NACKs included
	Messages     int64
	Bytes        int64 // of messages, before the transport
	Rejected     int64 // NACKs
	Timeouts     int64 // streams that ended because the client did not take a message
	Refused      int64 // streams that ended because of what their client did
	Slowed       int64 // requests whose successor had to wait
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

func (c *Counters) sent(bytes int, took time.Duration) {
	c.Messages++
	c.Bytes += int64(bytes)
	c.SendDuration.Sum += took
	i := 0
	for i < len(SendBuckets) && took > SendBuckets[i] {
		i++
	}
	c.SendDuration.Buckets[i]++
}

func (s *Server) count(change func(*Counters)) {
	s.counting.Lock()
	defer s.counting.Unlock()
	change(&s.counters)
}

// Counters returns the current counts.
func (s *Server) Counters() (now Counters) {
	s.count(func(c *Counters) { now = *c })
	return now
}
