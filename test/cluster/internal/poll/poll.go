// Package poll repeats a check until it succeeds.
package poll

import (
	"context"
	"fmt"
	"time"
)

// Until calls the function check at once and then at every tick, until it returns nil. If ctx
// ends first, the error wraps both the cause and the last error of that function.
func Until(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), err)
		}
	}
}
