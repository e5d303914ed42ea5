//go:build !linux

package providertest

import (
	"os/exec"
	"testing"
)

func endsWithParent(*exec.Cmd) {}

// Isolate is for Linux alone.
func Isolate() { panic("there are no network namespaces") }

// Port is for Linux alone: sockets have other types elsewhere.
func Port(t *testing.T) int { t.Fatal("no port can be held here"); return 0 }
