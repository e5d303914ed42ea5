// Package latest holds a value that one goroutine replaces while others wait for the next one.
package latest

import (
	"context"
	"sync"
)

// A Value holds a T, at first the zero T. It is safe for concurrent use.
type Value[T any] struct {
	mu       sync.Mutex
	value    T
	replaced chan struct{} // nil if no goroutine waits
}

// Get returns the value, and a channel that is closed when the value is replaced.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.replaced == nil {
		v.replaced = make(chan struct{})
	}
	return v.value, v.replaced
}

// Set replaces the value.
func (v *Value[T]) Set(next T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = next
	if v.replaced != nil {
		close(v.replaced)
		v.replaced = nil
	}
}

// Wait waits until c has a value or is closed, and returns true. It returns false if ctx ends first.
func Wait[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}
