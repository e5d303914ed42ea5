package controlplane

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/xds"
)

// A proxy that connects again sends all names that it has, each with a version. With 10,000
// services and the longest names of Kubernetes that fits.
func TestLargestOrdinaryRequestFits(t *testing.T) {
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.EndpointType, InitialResourceVersions: map[string]string{}}
	for i := range 10_000 {
		name := fmt.Sprintf("outbound|65535||%063d.%s.svc.cluster.local", i, strings.Repeat("n", 63))
		r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		r.InitialResourceVersions[name] = "0123456789abcdef"
	}
	if n := proto.Size(r); n > maxRequest {
		t.Errorf("%d bytes; at most %d are received", n, maxRequest)
	}
}
