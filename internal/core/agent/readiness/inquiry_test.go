package readiness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inquiry returns an Inquiry whose check calls the function answer, and a counter of its checks.
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
		if checks := n.Load(); checks < 50 || checks > 70 { // about twice a second
			t.Errorf("checked %d times in 30s", checks)
		}
		healthy.Store(true)
		began := time.Now()
		if _, err := b.Wait(t.Context(), Full); err != nil || time.Since(began) > longestPause {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		release()
		release() // a second call has no effect
		time.Sleep(time.Second)
		before := n.Load()
		time.Sleep(time.Hour)
		if n.Load() != before {
			t.Errorf("checked %d times although nothing waits", n.Load()-before)
		}

		// A later client gets a new result.
		healthy.Store(false)
		release = q.Want()
		q.Fresh(t.Context())
		if b.Status(Full).Ready {
			t.Error("an old answer was taken")
		}
		release()
		time.Sleep(time.Minute)

		// Again runs the check once.
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
		time.Sleep(time.Minute) // so that the goroutine ends within the test
	})
}

// A call of Again during a check repeats the check, which may not have seen the change.
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
