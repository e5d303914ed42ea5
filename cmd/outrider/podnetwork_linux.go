package main

import (
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
)

// podNetwork is that of this network namespace, unless it is the machine's own, which is no pod's.
func podNetwork() trace.Network {
	if setup.InHost() {
		return trace.Network{}
	}
	return setup.Network()
}
