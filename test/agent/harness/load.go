package harness

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Load makes requests continuously, and records the failures.
type Load struct {
	stop    atomic.Bool
	workers sync.WaitGroup
	made    atomic.Int64

	mu     sync.Mutex
	failed []Failure
	slow   time.Duration
}

// A Failure is a failed request.
type Failure struct {
	Begin, End time.Time
	Err        error
}

func (f Failure) String() string {
	return fmt.Sprintf("%s, after %s: %v", f.Begin.Format("05.000"), f.End.Sub(f.Begin).Round(time.Millisecond), f.Err)
}

// NewLoad starts n workers. Each calls the function request again and again, with a pause between two calls.
func NewLoad(n int, pause time.Duration, request func() error) *Load {
	l := &Load{}
	for range n {
		l.workers.Go(func() {
			for !l.stop.Load() {
				l.once(request)
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *Load) once(request func() error) {
	begin := time.Now()
	err := request()
	end := time.Now()
	l.made.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = max(l.slow, end.Sub(begin))
	if err != nil {
		l.failed = append(l.failed, Failure{begin, end, err})
	}
}

// Stop ends the load. It returns the number of requests, the longest response time, and the failures.
func (l *Load) Stop() (made int, slowest time.Duration, failed []Failure) {
	l.stop.Store(true)
	l.workers.Wait()
	return int(l.made.Load()), l.slow, l.failed
}

// Want returns an error unless the answer has status 200 and this body.
func (a Answer) Want(body string) error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Status != 200 || a.Body != body:
		return fmt.Errorf("%d %.300q", a.Status, a.Body)
	}
	return nil
}
