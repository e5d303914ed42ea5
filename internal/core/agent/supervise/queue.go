package supervise

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// queueLimit bounds the bytes in a [Queue]: about 10,000 lines of an access log.
const queueLimit = 4 << 20

// A Queue passes lines on to a writer that may block, as the pipe of a container's standard output
// does when its reader is slow. Write never blocks: when the queue is full, whole lines are dropped
// and counted. Without a queue, a child whose output blocks would buffer its lines in its own
// memory, without a bound.
type Queue struct {
	to   io.Writer
	lost atomic.Uint64

	mu       sync.Mutex
	part     []byte // the line that has not ended yet
	full     []byte // whole lines that have not been written yet
	skipping bool   // dropping the rest of a line that is too long
	writing  bool
	idle     chan struct{} // closed when all lines are written; nil: nothing was ever queued
}

// NewQueue returns a queue in front of a writer. A goroutine runs only while lines are queued.
func NewQueue(to io.Writer) *Queue { return &Queue{to: to} }

// Lost returns the number of lines that were dropped or could not be written.
func (q *Queue) Lost() uint64 { return q.lost.Load() }

// Write queues b, which may begin or end within a line. It always returns len(b).
func (q *Queue) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(b)
	end := bytes.LastIndexByte(b, '\n') + 1
	if end > 0 {
		lines := b[:end]
		if q.skipping {
			lines, q.skipping = lines[bytes.IndexByte(lines, '\n')+1:], false
		}
		if len(q.full)+len(q.part)+len(lines) <= queueLimit {
			q.full = append(append(q.full, q.part...), lines...)
			q.start()
		} else {
			q.lost.Add(uint64(bytes.Count(lines, []byte("\n"))))
		}
		q.part = q.part[:0]
	}
	switch rest := b[end:]; {
	case q.skipping:
	case len(q.part)+len(rest) > lineLimit:
		q.part, q.skipping = q.part[:0], true
		q.lost.Add(1)
	default:
		q.part = append(q.part, rest...)
	}
	return n, nil
}

// start starts the goroutine that writes the queued lines. The caller holds the lock.
func (q *Queue) start() {
	if q.writing || len(q.full) == 0 {
		return
	}
	q.writing, q.idle = true, make(chan struct{})
	go func() {
		var lines []byte
		for {
			q.mu.Lock()
			lines, q.full = q.full, lines[:0]
			if len(lines) == 0 {
				q.writing = false
				close(q.idle)
				q.full = nil
				q.mu.Unlock()
				return
			}
			q.mu.Unlock()
			if n, err := q.to.Write(lines); err != nil {
				q.lost.Add(uint64(bytes.Count(lines[n:], []byte("\n"))))
			}
		}
	}()
}

// Flush waits until all queued lines are written, for at most d.
func (q *Queue) Flush(d time.Duration) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(d):
	}
}
