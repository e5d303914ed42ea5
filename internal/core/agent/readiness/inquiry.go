package readiness

import (
	"context"
	"sync"
	"time"
)

// An Inquiry repeats a check of a condition, but only while a client waits for it. It is meant for a condition
// whose changes cause no events: the app's health. Its methods may be called from any goroutine.
type Inquiry struct {
	board     *Board
	condition Condition
	check     Check // has its own timeout

	mu       sync.Mutex
	wanted   int           // calls of Want that are not released yet
	running  bool          // the goroutine of run exists
	begun    time.Time     // when the last complete check began
	answered chan struct{} // closed when the next check ends
	again    chan struct{} // capacity 1: run the check at once
}

// firstPause and longestPause bound the pauses between two checks while a client waits. Fresh
// waits for at most freshWait, and takes a result that is not older than recent.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
	freshWait    = 2 * time.Second
	recent       = time.Second
)

// NewInquiry returns an Inquiry that has not checked yet.
func NewInquiry(b *Board, c Condition, check Check) *Inquiry {
	return &Inquiry{board: b, condition: c, check: check, answered: make(chan struct{}), again: make(chan struct{}, 1)}
}

// Want repeats the check until release is called.
func (q *Inquiry) Want() (release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted++
	q.start()
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.wanted--
	})
}

// Again runs the check once more, because something has changed.
func (q *Inquiry) Again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running {
		q.start()
		return
	}
	select {
	case q.again <- struct{}{}:
	default:
	}
}

// Fresh waits until the board has a recent result, or until freshWait is over. Call it after
// Want.
func (q *Inquiry) Fresh(ctx context.Context) {
	oldest := time.Now().Add(-recent)
	late := time.After(freshWait)
	for {
		q.mu.Lock()
		begun, next := q.begun, q.answered
		q.mu.Unlock()
		if begun.After(oldest) {
			return
		}
		select {
		case <-next:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (q *Inquiry) start() {
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *Inquiry) run() {
	pause := firstPause
	for {
		q.once()
		select {
		case <-q.again:
			pause = firstPause
			continue
		default:
		}
		if q.done() {
			return
		}
		select {
		case <-q.again:
			pause = firstPause
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
			if q.done() {
				return
			}
		}
	}
}

// done reports whether no client waits any longer. If so, it marks the goroutine as ended.
func (q *Inquiry) done() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wanted > 0 || len(q.again) > 0 {
		return false
	}
	q.running = false
	return true
}

func (q *Inquiry) once() {
	begun := time.Now()
	note, err := q.check(context.Background())
	if err != nil {
		note = err.Error()
	}
	q.board.Set(q.condition, err == nil, note)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begun = begun
	close(q.answered)
	q.answered = make(chan struct{})
}
