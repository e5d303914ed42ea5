//go:build !linux

package providertest

import (
	"os/exec"
	"testing"
)

func endsWithParent(*exec.Cmd) {}

// Isolate works only on Linux, and panics here.
func Isolate() { panic("there are no network namespaces") }

// Port works only on Linux, and fails the test here.
func Port(t *testing.T) int { t.Fatal("no port can be held here"); return 0 }
