package main

import (
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
)

// podNetwork describes the process's network namespace. It is unknown if that is the machine's own, which belongs to no pod.
func podNetwork() trace.Network {
	if setup.InHost() {
		return trace.Network{}
	}
	return setup.Network()
}
