package readiness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inquiry is one whose answer the test gives, and counts its checks.
func inquiry(b *Board, answer func() error) (*Inquiry, *atomic.Int32) {
	var n atomic.Int32
	return NewInquiry(b, App, func(context.Context) (string, error) {
		n.Add(1)
		return "", answer()
	}), &n
}

func TestAnInquiryRestsWithoutACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{App}})
		var healthy atomic.Bool
		q, n := inquiry(b, func() error {
			if healthy.Load() {
				return nil
			}
			return errors.New("connection refused")
		})
		time.Sleep(time.Hour)
		if n.Load() != 0 {
			t.Fatalf("nothing waits, and it was checked %d times", n.Load())
		}
		release := q.Want()
		q.Fresh(t.Context())
		if got := b.Status(Full).String(); got != "app-not-healthy: connection refused" {
			t.Errorf("the first answer: %s", got)
		}
		time.Sleep(30 * time.Second)
		if checks := n.Load(); checks < 50 || checks > 70 { // twice a second
			t.Errorf("checked %d times in 30s", checks)
		}
		healthy.Store(true)
		began := time.Now()
		if _, err := b.Wait(t.Context(), Full); err != nil || time.Since(began) > longestPause {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		release()
		release() // again, and it does not count
		time.Sleep(time.Second)
		before := n.Load()
		time.Sleep(time.Hour)
		if n.Load() != before {
			t.Errorf("checked %d times although nothing waits", n.Load()-before)
		}

		// A later client gets a new answer.
		healthy.Store(false)
		release = q.Want()
		q.Fresh(t.Context())
		if b.Status(Full).Ready {
			t.Error("an old answer was taken")
		}
		release()
		time.Sleep(time.Minute)

		// After a change the check is made once.
		healthy.Store(true)
		before = n.Load()
		q.Again()
		time.Sleep(time.Hour)
		if n.Load() != before+1 || !b.Status(Full).Ready {
			t.Errorf("checked %d times, %v", n.Load()-before, b.Status(Full))
		}
	})
}

func TestFreshIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{App}})
		hang := make(chan struct{})
		q, _ := inquiry(b, func() error { <-hang; return nil })
		release := q.Want()
		began := time.Now()
		q.Fresh(t.Context())
		if d := time.Since(began); d != freshWait {
			t.Errorf("no answer, and it took %s", d)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		q.Fresh(gone)
		if d := time.Since(began); d != freshWait {
			t.Errorf("the client is gone, and it took %s", d)
		}
		close(hang)
		q.Fresh(t.Context())
		if !b.Status(Full).Ready {
			t.Error("the answer was not taken")
		}
		release()
		time.Sleep(time.Minute) // or its goroutine would outlive the test
	})
}

// A change during a check may be later than what the check has seen: it is made again.
func TestAnInquiryKeepsARequestThatComesDuringACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{App}})
		q, n := inquiry(b, func() error { time.Sleep(time.Second); return nil })
		q.Again()
		synctest.Wait()
		q.Again()
		q.Again()
		time.Sleep(time.Hour)
		if n.Load() != 2 {
			t.Errorf("checked %d times; want 2", n.Load())
		}
	})
}
