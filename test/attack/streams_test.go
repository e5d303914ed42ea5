package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// streams are attacks with configuration streams, by the holder of one workload's certificate.
var streams = []attacked{
	{
		name: "streams: 100 names of 1 MB", ordinary: stream,
		attack: byStreams(1, nil, func(worker, n int) *discovery.DeltaDiscoveryRequest {
			return subscribe("http|10.100.0.1:" + strings.Repeat("0", 1_000_000+n%100) + "80")
		}),
	},
	{
		name: "streams: 20,000 aliases of names with 500 bytes", ordinary: stream,
		attack: byStreams(8, nil, func(worker, n int) *discovery.DeltaDiscoveryRequest {
			var names []string
			for i := range 5000 {
				zone := strings.Repeat("z", 480) + fmt.Sprintf("%07d", n*5000+i)
				names = append(names, "tcp|[fe80::1%"+zone+"]:80")
			}
			return subscribe(names...)
		}),
	},
	{
		name: "streams: every port of a pod, and addresses", ordinary: stream,
		attack: byStreams(8, nil, func(worker, n int) *discovery.DeltaDiscoveryRequest {
			var names []string
			for i := range 5000 {
				number := n*5000 + i
				names = append(names, fmt.Sprintf("tcp|10.%d.%d.1:%d", 200+worker, number>>16&0xff, number&0xffff|1))
			}
			return subscribe(names...)
		}),
	},
	{
		name: "streams: metadata of 1 MB, each time another", ordinary: stream,
		attack: byStreams(8, func(worker, n int) map[string]any {
			return map[string]any{contract.MetadataCertificates: "/" + strings.Repeat("d", 1_000_000+worker*1000+n)}
		}, func(int, int) *discovery.DeltaDiscoveryRequest { return subscribe(used) }),
	},
	{
		name: "streams: metadata of 60 kB, each time another", ordinary: stream,
		attack: byStreams(8, func(worker, n int) map[string]any {
			text := fmt.Sprintf("%d-%d-", worker, n)
			return map[string]any{
				contract.MetadataCertificates: "/" + text, contract.MetadataWorkload: text, "x": text + strings.Repeat("x", 50_000),
				contract.MetadataPrewarm: strings.Repeat("filler-0.shop,", 500),
			}
		}, func(int, int) *discovery.DeltaDiscoveryRequest { return subscribe(used) }),
	},
	{
		name: "streams: versions of what no stream sent, 3.9 MB a request", ordinary: stream,
		attack: byStreams(16, nil, func(worker, n int) *discovery.DeltaDiscoveryRequest {
			r := subscribe(used)
			r.InitialResourceVersions = map[string]string{}
			for i := range 7500 {
				r.InitialResourceVersions[fmt.Sprintf("%0500d", n*7500+i)] = "1234567890"
			}
			return r
		}),
	},
	{
		name: "streams: rubbish tokens, with 3.9 MB each", ordinary: stream,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			names := make([]string, 7500)
			for i := range names {
				names[i] = fmt.Sprintf("%0500d", i)
			}
			return repeat(ctx, v.n(30, 200), func(ctx context.Context, worker int) error {
				connection, err := v.grpc(config)
				if err != nil {
					return err
				}
				defer connection.Close()
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", fmt.Sprintf("Bearer rubbish.%d.rubbish", worker))
				s, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
				if err != nil {
					return err
				}
				_ = s.Send(subscribe(names...)) // the next Recv returns the error
				_, err = s.Recv()
				return err
			})
		}),
	},
	{
		name: "streams: wildcards, again and again", ordinary: stream, services: 2000,
		attack: byStreams(16, nil, func(_, n int) *discovery.DeltaDiscoveryRequest {
			return &discovery.DeltaDiscoveryRequest{TypeUrl: []string{xds.ClusterType, xds.EndpointType, xds.ListenerType}[n%3]}
		}),
	},
}

func subscribe(names ...string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: xds.ClusterType, ResourceNamesSubscribe: names}
}

// byStreams makes each worker send ten requests on a stream, then ten on the next, and so on.
func byStreams(workers int, metadata func(worker, n int) map[string]any, request func(worker, n int) *discovery.DeltaDiscoveryRequest) func(context.Context, victim) (string, error) {
	return func(ctx context.Context, v victim) (string, error) {
		config, err := v.holder("hostile")
		if err != nil {
			return "", err
		}
		count := make([]atomic.Int64, workers)
		return repeat(ctx, workers, func(ctx context.Context, worker int) error {
			var more map[string]any
			if metadata != nil {
				more = metadata(worker, int(count[worker].Load()))
			}
			node, err := node("hostile", "10.244.1.2", v.Namespace, more)
			if err != nil {
				return err
			}
			connection, err := v.grpc(config)
			if err != nil {
				return err
			}
			defer connection.Close()
			ctx, cancel := context.WithTimeout(ctx, time.Second) // time limit: then the next stream is opened
			defer cancel()
			s, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
			if err != nil {
				return err
			}
			go func() {
				for range 10 {
					r := request(worker, int(count[worker].Add(1)))
					r.Node = node
					if s.Send(r) != nil {
						return // the stream has ended, and Recv returns the reason
					}
				}
			}()
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		})
	}
}
