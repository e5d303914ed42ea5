package readiness

import (
	"context"
	"sync"
	"time"
)

// An Inquiry checks whether a condition holds while a client waits for it, and rests
// otherwise. It is for a condition that announces no changes: the app's health. Its methods may be called from any goroutine.
type Inquiry struct {
	board     *Board
	condition Condition
	check     Check // bounds itself

	mu       sync.Mutex
	wanted   int           // callers of Want that have not released it
	running  bool          // a check is under way, or the pause between two
	begun    time.Time     // when the last complete check began
	answered chan struct{} // closed by the next answer
	again    chan struct{} // holds one: run the check at once
}

// Pauses between two checks while a client waits; freshWait is how long Fresh waits, and an
// answer is fresh for recent.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
	freshWait    = 2 * time.Second
	recent       = time.Second
)

// NewInquiry returns one that has not run yet.
func NewInquiry(b *Board, c Condition, check Check) *Inquiry {
	return &Inquiry{board: b, condition: c, check: check, answered: make(chan struct{}), again: make(chan struct{}, 1)}
}

// Want has the check repeated until it is released.
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

// Again has the check run once more: something has changed.
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

// Fresh returns when the board has an answer that is not old, or none comes in time. Call it
// after Want.
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

// done reports that no client waits any longer; then the checks end.
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
