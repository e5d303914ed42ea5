package poll_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"outrider.dev/test/cluster/internal/poll"
)

func TestUntilAsksBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, questions := time.Now(), 0
		err := poll.Until(t.Context(), 100*time.Millisecond, func(context.Context) error {
			if questions++; questions < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(start); err != nil || took != 200*time.Millisecond {
			t.Errorf("Until took %v and returned %v, want 200ms and nil", took, err)
		}
	})
}

func TestUntilSaysWhyItGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("too late")
		refused := errors.New("connection refused")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		err := poll.Until(ctx, 100*time.Millisecond, func(context.Context) error { return refused })
		if !errors.Is(err, late) || !errors.Is(err, refused) {
			t.Errorf("Until: %v, want it to wrap %v and %v", err, late, refused)
		}
	})
}
