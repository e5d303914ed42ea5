package resilience

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// A Budget bounds the retries and hedges of all policies that share it, in addition to the limits of
// each call: in t seconds, n calls lead to at most
//
//	Burst + Ratio*n + PerSecond*t
//
// repeated requests. The budget of failsafe-go bounds the number of repeated requests in flight. That does not
// bound their rate: a refused connection is in flight for microseconds only.
//
// The zero value is not usable; see [NewBudget]. A Budget may be used by any number of goroutines.
type Budget struct {
	options BudgetOptions

	mu     sync.Mutex
	tokens float64 // if negative, waiting retries have reserved future tokens
	at     time.Time
}

// BudgetOptions are the options of [NewBudget]. At least one of Ratio and PerSecond must be above 0.
type BudgetOptions struct {
	Ratio     float64 // repeated requests allowed per call, 0 to 1
	PerSecond float64 // repeated requests allowed per second in addition, so that rare calls can be repeated too; 0 to 1000
	Burst     int     // maximum number of tokens, one for each repeated request, and their number at the start; 1 to 1000
}

// NewBudget returns a full budget, or an error that names each invalid field.
func NewBudget(o BudgetOptions) (*Budget, error) {
	err := errors.Join(
		inRange("BudgetOptions.Ratio", o.Ratio, 0, 1),
		inRange("BudgetOptions.PerSecond", o.PerSecond, 0, 1000),
		inRange("BudgetOptions.Burst", float64(o.Burst), 1, 1000),
	)
	if err == nil && o.Ratio == 0 && o.PerSecond == 0 {
		err = errors.New("BudgetOptions.Ratio and PerSecond are 0: once the burst is used, nothing would be repeated; set one of them")
	}
	if err != nil {
		return nil, fmt.Errorf("resilience: %w", err)
	}
	return &Budget{options: o, tokens: float64(o.Burst)}, nil
}

// processBudget is shared by all policies without a budget of their own. Ratio and rate are in the
// range of Finagle's RetryBudget and gRPC's retry throttling.
var processBudget = sync.OnceValue(func() *Budget {
	b, err := NewBudget(BudgetOptions{Ratio: 0.2, PerSecond: 5, Burst: 20})
	if err != nil {
		panic(err) // cannot happen: the options above are constant
	}
	return b
})

// ProcessBudget returns the budget that all policies of the process without Options.Budget
// share: Ratio 0.2, PerSecond 5, Burst 20.
func ProcessBudget() *Budget { return processBudget() }

// deposit adds Ratio tokens. It is called once per call.
func (b *Budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+b.options.Ratio, float64(b.options.Burst))
}

// withdraw takes a token for one repeated request. If there is none, it reserves a future token, and returns the
// time to wait for it. It returns false if the token would come later than patience.
func (b *Budget) withdraw(patience time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.at.IsZero() {
		// max: if the clock was set back, add nothing.
		b.tokens = min(b.tokens+max(0, now.Sub(b.at).Seconds())*b.options.PerSecond, float64(b.options.Burst))
	}
	b.at = now
	if b.tokens < 1 {
		if b.options.PerSecond == 0 {
			return 0, false
		}
		// Round up, because after a wait that is a nanosecond too short the token would not exist yet.
		wait = time.Duration(math.Ceil((1 - b.tokens) / b.options.PerSecond * float64(time.Second)))
		if wait > patience {
			return 0, false
		}
	}
	b.tokens--
	return wait, true
}
