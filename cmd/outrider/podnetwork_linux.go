package main

import (
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
)

// podNetwork describes the network namespace of this process. In the machine's own namespace, which belongs to no
// pod, it returns the zero value, an unknown network.
func podNetwork() trace.Network {
	if setup.InHost() {
		return trace.Network{}
	}
	return setup.Network()
}
