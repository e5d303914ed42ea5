package xds

import "time"

// Counters count since the server's start, except for Streams.
type Counters struct {
	Streams      int64 // currently open
	Requests     int64 // including ACKs and NACKs
	Messages     int64
	Bytes        int64 // of messages, without the transport
	Rejected     int64 // NACKs
	Timeouts     int64 // streams that ended because the client did not read a message
	Refused      int64 // streams that ended because of an error of the client
	Slowed       int64 // requests after which the client's next request had to wait
	SendDuration Histogram
}

// SendBuckets are the upper bounds of the buckets of a [Histogram], except its last one, which counts all longer
// durations.
var SendBuckets = [...]time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

// A Histogram counts durations by bucket. The counts are not cumulative.
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
