package readiness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// asked is an inquiry whose answer the test gives, and how often it was asked.
func asked(b *Board, answer func() error) (*Inquiry, *atomic.Int32) {
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
		q, n := asked(b, func() error {
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
		if asked := n.Load(); asked < 50 || asked > 70 { // twice a second
			t.Errorf("asked %d times in 30s", asked)
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

		// Who asks later gets an answer of then.
		healthy.Store(false)
		release = q.Want()
		q.Fresh(t.Context())
		if b.Status(Full).Ready {
			t.Error("an old answer was taken")
		}
		release()
		time.Sleep(time.Minute)

		// And who says that something has changed has it asked once.
		healthy.Store(true)
		before = n.Load()
		q.Again()
		time.Sleep(time.Hour)
		if n.Load() != before+1 || !b.Status(Full).Ready {
			t.Errorf("asked %d times, %v", n.Load()-before, b.Status(Full))
		}
	})
}

func TestAnInquiryDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{App}})
		hang := make(chan struct{})
		q, _ := asked(b, func() error { <-hang; return nil })
		release := q.Want()
		began := time.Now()
		q.Fresh(t.Context())
		if d := time.Since(began); d != patience {
			t.Errorf("no answer, and it took %s", d)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		q.Fresh(gone)
		if d := time.Since(began); d != patience {
			t.Errorf("the asker is gone, and it took %s", d)
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

// A word that comes while a question is on its way may be about something later: it is
// asked again.
func TestAnInquiryKeepsARequestThatComesDuringACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{App}})
		q, n := asked(b, func() error { time.Sleep(time.Second); return nil })
		q.Again()
		synctest.Wait()
		q.Again()
		q.Again()
		time.Sleep(time.Hour)
		if n.Load() != 2 {
			t.Errorf("asked %d times; want 2", n.Load())
		}
	})
}
