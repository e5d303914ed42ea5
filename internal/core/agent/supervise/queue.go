package supervise

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// queueLimit bounds what a [Queue] keeps: about 10,000 lines of an access log.
const queueLimit = 4 << 20

// A Queue passes lines on to a writer that may block, as the pipe of a container's standard output
// does when its reader is slow. Its own Write never blocks: lines for which there is no room are
// lost, whole, and counted. A child that wrote to the pipe itself would keep them in its memory,
// without a bound.
type Queue struct {
	to   io.Writer
	lost atomic.Uint64

	mu       sync.Mutex
	part     []byte // of the line that has not ended
	full     []byte // lines that wait
	skipping bool   // the rest of a line that is too long
	writing  bool
	idle     chan struct{} // is closed when nothing waits; nil: nothing does
}

// NewQueue returns a queue in front of a writer. It has a goroutine while lines wait.
func NewQueue(to io.Writer) *Queue { return &Queue{to: to} }

// Lost returns how many lines were lost.
func (q *Queue) Lost() uint64 { return q.lost.Load() }

// Write takes parts of lines. It always takes all of them.
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

// start writes what waits, with the lock held by its caller.
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

// Flush waits until nothing waits, for at most d.
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
