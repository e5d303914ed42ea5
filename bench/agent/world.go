package main

import (
	"errors"
	"fmt"
	"testing"

	"outrider.dev/test/agent/harness"
)

// A keeper is a testing.TB outside of a test: it runs the cleanups, and stops at the first
// error.
type keeper struct {
	testing.TB // nil; the harness uses only the methods below
	ends       []func()
}

// A stop is the panic of a fatal error.
type stop struct{ error }

func (k *keeper) Helper()                   {}
func (k *keeper) Failed() bool              { return false }
func (k *keeper) Cleanup(f func())          { k.ends = append(k.ends, f) }
func (k *keeper) Log(...any)                {}
func (k *keeper) Logf(string, ...any)       {}
func (k *keeper) Fatal(args ...any)         { panic(stop{errors.New(fmt.Sprint(args...))}) }
func (k *keeper) Error(args ...any)         { k.Fatal(args...) }
func (k *keeper) Skip(args ...any)          { k.Fatal(args...) }
func (k *keeper) Fatalf(f string, a ...any) { k.Fatal(fmt.Sprintf(f, a...)) }
func (k *keeper) Errorf(f string, a ...any) { k.Fatalf(f, a...) }
func (k *keeper) Skipf(f string, a ...any)  { k.Fatalf(f, a...) }

// inWorld calls f with a new world, and cleans it up.
func inWorld(f func(*harness.World)) (err error) {
	k := &keeper{}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stop:
			err = r.error
		default:
			panic(r)
		}
	}()
	defer func() {
		for len(k.ends) > 0 {
			last := len(k.ends) - 1
			end := k.ends[last]
			k.ends = k.ends[:last]
			end()
		}
	}()
	f(harness.New(k))
	return nil
}
