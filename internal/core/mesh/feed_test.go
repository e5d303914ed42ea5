package mesh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettle(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		every   time.Duration // time between changes
		changes int
		want    time.Duration // time since the first change
	}{
		"one change, then quiet":       {0, 1, 20 * ms},
		"each change restarts it":      {15 * ms, 3, 50 * ms},
		"continuous changes are bound": {15 * ms, 100, 200 * ms},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				dirty := make(chan struct{}, 1)
				go func() {
					for range tt.changes {
						dirty <- struct{}{}
						time.Sleep(tt.every)
					}
				}()
				start := time.Now()
				if ok := Settle(ctx, dirty); !ok || time.Since(start) != tt.want {
					t.Errorf("Settle = %v after %s, want %s", ok, time.Since(start), tt.want)
				}
				for len(dirty) > 0 || tt.changes > 99 && time.Since(start) < 2*time.Second {
					select {
					case <-dirty:
					case <-time.After(ms):
					}
				}
				cancel()
				if Settle(ctx, dirty) {
					t.Error("Settle = true after the end of its context")
				}
			})
		})
	}
}
