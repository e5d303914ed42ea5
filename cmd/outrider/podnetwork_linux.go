package main

import (
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
)

// podNetwork is that of this network namespace, unless it is the machine's own, which is no pod's.
func podNetwork() capture.Network {
	if setup.InHost() {
		return capture.Network{}
	}
	return setup.Network()
}
