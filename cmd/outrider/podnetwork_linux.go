package main

import (
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
)

// podNetwork describes the process's network namespace, unless that is the machine's own and no pod's.
func podNetwork() trace.Network {
	if setup.InHost() {
		return trace.Network{}
	}
	return setup.Network()
}
