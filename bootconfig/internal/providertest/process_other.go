//go:build !linux

package providertest

import "os/exec"

func endsWithParent(*exec.Cmd) {}

// Isolate is for Linux alone.
func Isolate() { panic("there are no network namespaces") }
