// Package tb lets a program that is not a test call helpers that need a testing.TB.
package tb

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// A keeper is a testing.TB outside of a test. It collects errors, and the functions passed to Cleanup, which
// [Run] calls.
type keeper struct {
	testing.TB // nil; the helpers use only the methods below
	mu         sync.Mutex
	errs       []error
	ends       []func()
}

func (k *keeper) Helper()                   {}
func (k *keeper) Log(...any)                {}
func (k *keeper) Logf(string, ...any)       {}
func (k *keeper) Cleanup(f func())          { k.ends = append(k.ends, f) }
func (k *keeper) Failed() bool              { return k.err() != nil }
func (k *keeper) FailNow()                  { runtime.Goexit() }
func (k *keeper) Fatal(args ...any)         { k.Error(args...); k.FailNow() }
func (k *keeper) Skip(args ...any)          { k.Fatal(args...) }
func (k *keeper) Fatalf(f string, a ...any) { k.Fatal(fmt.Sprintf(f, a...)) }
func (k *keeper) Errorf(f string, a ...any) { k.Error(fmt.Sprintf(f, a...)) }
func (k *keeper) Skipf(f string, a ...any)  { k.Fatalf(f, a...) }

func (k *keeper) Error(args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, errors.New(fmt.Sprint(args...)))
}

func (k *keeper) err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

// Run calls f, then its cleanups in reverse order, and returns the errors that f reported. Fatal, FailNow and
// Skip end f.
func Run(f func(testing.TB)) error {
	k := &keeper{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(k.ends) - 1; i >= 0; i-- {
				k.ends[i]()
			}
		}()
		f(k)
	}()
	<-done
	return k.err()
}
