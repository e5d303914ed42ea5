//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/capture/trace"
)

func becomeContainer() {}

func newRun() *cobra.Command { return cli.NeedsLinux("run", runShort) }

func newDemo() *cobra.Command { return cli.NeedsLinux("demo", demoShort) }

// podNetwork returns the zero value, an unknown network: only on Linux a process can be in the network of a pod.
func podNetwork() trace.Network { return trace.Network{} }
