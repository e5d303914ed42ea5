package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/xds"
	"outrider.dev/test/process"
)

// identities are attacks that misuse an identity: by the holder of a certificate whose workload has left the mesh,
// and by a pod that was never in the mesh.
var identities = []attacked{
	{
		name:     "identities: a certificate that renews itself for ever",
		ordinary: certificate,
		attack: func(ctx context.Context, v victim) (string, error) {
			config, err := v.holder("gone")
			if err != nil {
				return "", err
			}
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return "", err
			}
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
			if err != nil {
				return "", err
			}
			request := wire.CertificateRequest{CSR: string(pem.EncodeToMemory(&pem.Block{Type: wire.RequestBlock, Bytes: der})), Life: 90 * 24 * time.Hour}
			connection, err := v.grpc(config)
			if err != nil {
				return "", err
			}
			defer connection.Close()
			var renewed atomic.Int64
			did, err := repeat(ctx, 20, func(ctx context.Context, _ int) error {
				err := v.certificate(ctx, connection, request, "")
				if err == nil {
					renewed.Add(1)
				}
				return err
			})
			if n := renewed.Load(); err == nil && n > 0 {
				err = fmt.Errorf("%d certificates for a workload that is not in the mesh", n)
			}
			return did, err
		},
	},
	{
		name:     "identities: streams of certificates that expire",
		ordinary: stream,
		attack: func(ctx context.Context, v victim) (string, error) {
			const life = time.Second
			var outlived atomic.Int64
			did, err := repeat(ctx, v.n(20, 100), func(ctx context.Context, worker int) error {
				account := "short-" + strconv.Itoa(worker)
				config, err := v.holderFor(account, life)
				if err != nil {
					return err
				}
				connection, err := v.grpc(config)
				if err != nil {
					return err
				}
				defer connection.Close()
				node, err := node(account, "10.244.1.2", v.Namespace, nil)
				if err != nil {
					return err
				}
				// The stream may outlive ctx, because the server must end it when the certificate
				// expires. The expiry is rounded down to a whole second, so it comes at most the lifetime (life)
				// after now. The additional time is for a busy machine.
				late, cancel := context.WithTimeout(context.WithoutCancel(ctx), life+process.Patience/2)
				defer cancel()
				s, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(late)
				if err != nil {
					return err
				}
				if err := s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.ClusterType}); err != nil {
					return err
				}
				for {
					if _, err := s.Recv(); err != nil {
						// The deadline has passed, here or at the server, which knows it too.
						if status.Code(err) == codes.DeadlineExceeded {
							outlived.Add(1)
						}
						return nil // the expected result
					}
				}
			})
			if n := outlived.Load(); err == nil && n > 0 {
				err = fmt.Errorf("%d streams outlived their certificate by %s", n, process.Patience/2)
			}
			return did, err
		},
	},
	{
		name:     "identities: hooks, probes and metrics of a pod without one",
		agent:    true,
		ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			paths := []string{
				contract.HookPath + "app/prestopz", contract.ProbePath + "app/readyz", contract.HookPath + "app/prestopz/0123456789abcdef",
				"/startup", "/quitquitquit", "/debug/goroutines", "/metrics", contract.ReadyPath + "?level=full&wait=1m",
			}
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
			defer client.CloseIdleConnections()
			var answered atomic.Int64
			did, err := repeat(ctx, v.n(50, 200), func(ctx context.Context, worker int) error {
				path := paths[worker%len(paths)]
				port := contract.StatusPort
				if worker%2 == 1 {
					port = contract.ReadinessPort
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(v.Pod, strconv.Itoa(port))+path, nil)
				if err != nil {
					return err
				}
				r.Header.Set("X-Forwarded-Client-Cert", "URI=spiffe://cluster.local/ns/shop/sa/admin")
				answer, err := client.Do(r)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				io.Copy(io.Discard, answer.Body)
				if answer.StatusCode == http.StatusOK && path != "/metrics" && r.URL.Path != contract.ReadyPath {
					answered.Add(1)
				}
				if answer.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %s", path, answer.Status)
				}
				return nil
			})
			if n := answered.Load(); err == nil && n > 0 {
				err = fmt.Errorf("%d requests were answered that are for the pod and its node", n)
			}
			return did, err
		},
	},
}

// certificates are attacks on the certificate service, by a client without an identity that can reach the port.
var certificates = []attacked{
	{
		name:     "certificates: 60 requests of 15 MB, unauthenticated",
		ordinary: certificate,
		attack: byTLS(func(ctx context.Context, v victim, config *tls.Config) (string, error) {
			request := wire.CertificateRequest{CSR: strings.Repeat("A", 15_000_000)}
			return repeat(ctx, v.n(10, 60), func(ctx context.Context, _ int) error {
				connection, err := v.grpc(config)
				if err != nil {
					return err
				}
				defer connection.Close()
				return v.certificate(ctx, connection, request, "")
			})
		}),
	},
}
