package localpod

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseNetwork parses the network of a node's pods, such as 10.244.0.0/24.
func ParseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q: write it like 10.244.0.0/24", text)
	}
	if a := network.Masked().Addr(); !a.Is4() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() || network.Bits() > 30 {
		return netip.Prefix{}, fmt.Errorf("%q: must be an unused IPv4 network with room for a pod, like 10.244.0.0/24", text)
	}
	return network, nil
}

// ParseEntrypoints parses a list of images with their commands, such as redis:8=redis-server, and maps each image
// to its command.
func ParseEntrypoints(list []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, text := range list {
		image, command, ok := strings.Cut(text, "=")
		if !ok || len(strings.Fields(command)) == 0 {
			return nil, fmt.Errorf("%q: write it like redis:8=redis-server", text)
		}
		out[image] = strings.Fields(command)
	}
	return out, nil
}
