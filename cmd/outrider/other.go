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

// podNetwork is unknown: rules are written and explained for a pod on Linux.
func podNetwork() trace.Network { return trace.Network{} }
