// Package poll asks a question until the answer is yes.
package poll

import (
	"context"
	"fmt"
	"time"
)

// Until asks at once and then on every tick, until ask returns nil. If ctx ends
// first, the error wraps both the cause and the last answer.
func Until(ctx context.Context, every time.Duration, ask func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := ask(ctx)
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
