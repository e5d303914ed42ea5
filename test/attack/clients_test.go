package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/xds"
	"outrider.dev/test/agent/harness"
)

// A client plays an ordinary client, whose requests must succeed during an attack. Each request uses a new
// connection, because a request on an open connection would not show whether new connections are accepted.
type client struct {
	name string
	pace time.Duration // time between two requests
	once func(context.Context) error
}

// victim returns the facts about a world that its hostile and ordinary clients know.
func (w *world) victim() victim {
	v := victim{Address: harness.PlaneAddress, State: w.State(), Roots: w.Roots(), Namespace: harness.Namespace, Long: *long}
	if w.pod != nil {
		v.Pod = w.pod.Address.String()
	}
	return v
}

// dial connects from the ordinary client's namespace.
func (w *world) dial(ctx context.Context, network, to string) (net.Conn, error) {
	return harness.Dialer(w.friend.Namespace, 0)(ctx, network, to)
}

func (w *world) dialGRPC() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.dial(ctx, "tcp", to) })
}

// review returns a client that acts as the API server: it sends reviews of an ordinary pod.
func review(w *world) client {
	v := w.victim()
	body := reviewOf(`{"metadata":{"name":"app","labels":{"app":"app"}},"spec":{"containers":[{"name":"app","image":"app:1","command":["/app"]}]}}`)
	return client{"review", 20 * time.Millisecond, func(ctx context.Context) error {
		config, err := v.tls()
		if err != nil {
			return err
		}
		transport := &http.Transport{TLSClientConfig: config, DialContext: w.dial}
		defer transport.CloseIdleConnections()
		return v.review(ctx, &http.Client{Transport: transport}, body)
	}}
}

// reviewOf encodes an AdmissionReview as the API server does.
func reviewOf(pod string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","kind":{"group":"","version":"v1","kind":"Pod"},`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":%q,"operation":"CREATE","userInfo":{},"object":%s,"oldObject":null,"dryRun":false,"options":null}}`,
		harness.Namespace, pod)
}

// review posts a review. It fails if the answer contains no patch.
func (v victim) review(ctx context.Context, c *http.Client, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+v.at(contract.WebhookPort)+webhook.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"patch":`)) {
		return fmt.Errorf("status %d: %.300s", answer.StatusCode, text)
	}
	return nil
}

// certificate returns a client that acts as the agent of a new pod: it requests a certificate with its token.
func certificate(w *world) client {
	v := w.victim()
	token, err := v.token("ordinary")
	if err != nil {
		w.T.Fatal(err)
	}
	request, err := csr(v.Namespace, "ordinary")
	if err != nil {
		w.T.Fatal(err)
	}
	// The pace respects the rate limit of 20 requests per second for each address.
	return client{"certificate", 50 * time.Millisecond, func(ctx context.Context) error {
		config, err := v.tls()
		if err != nil {
			return err
		}
		connection, err := v.grpc(config, w.dialGRPC())
		if err != nil {
			return err
		}
		defer connection.Close()
		return v.certificate(ctx, connection, request, token)
	}}
}

// csr returns a request for the certificate of a workload with a new key.
func csr(namespace, account string) (wire.CertificateRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return wire.CertificateRequest{}, err
	}
	uri := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/" + account}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{uri}}, key)
	return wire.CertificateRequest{CSR: string(pem.EncodeToMemory(&pem.Block{Type: wire.RequestBlock, Bytes: der}))}, err
}

// certificate sends a request for a certificate, with a token unless it is empty.
func (v victim) certificate(ctx context.Context, connection *grpc.ClientConn, request wire.CertificateRequest, token string) error {
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	in, out := &emptypb.Empty{}, &emptypb.Empty{}
	in.ProtoReflect().SetUnknown(request.Marshal()) // sends the message without its generated type
	if err := connection.Invoke(ctx, wire.CertificatePath, in, out); err != nil {
		return err
	}
	answer, err := wire.ParseCertificateResponse(out.ProtoReflect().GetUnknown())
	if err == nil && len(answer.Chain) == 0 {
		err = errors.New("an answer without a certificate")
	}
	return err
}

// stream returns a client that acts as a new proxy: it opens a delta stream, and closes the stream when it has its
// clusters, its listeners, and the endpoints of a service that it uses.
func stream(w *world) client {
	v := w.victim()
	config, err := v.holder("ordinary")
	if err != nil {
		w.T.Fatal(err)
	}
	node, err := node("ordinary", w.friend.Address.String(), v.Namespace, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	return client{"stream", 40 * time.Millisecond, func(ctx context.Context) error {
		connection, err := v.grpc(config, w.dialGRPC())
		if err != nil {
			return err
		}
		defer connection.Close()
		return firstConfiguration(ctx, connection, node)
	}}
}

// scrape returns a client that acts as Prometheus: it reads the metrics of outriderd.
func scrape(w *world) client {
	return client{"scrape", 20 * time.Millisecond, func(ctx context.Context) error {
		transport := &http.Transport{DialContext: w.dial}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.victim().at(contract.MonitoringPort)+"/metrics", nil)
		if err != nil {
			return err
		}
		return discard((&http.Client{Transport: transport}).Do(r))
	}}
}

// probe returns a client that acts as the kubelet: it probes the pod's readiness port from the node.
func probe(w *world) client {
	url := "http://" + net.JoinHostPort(w.victim().Pod, strconv.Itoa(contract.ReadinessPort)) + "/healthz/ready"
	return client{"probe", 20 * time.Millisecond, func(ctx context.Context) error {
		transport := &http.Transport{DialContext: harness.Dialer(w.Node, 0)}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}}
}

// node describes a proxy as its agent does.
func node(account, address, namespace string, more map[string]any) (*core.Node, error) {
	all := map[string]any{
		contract.MetadataServiceAccount: account, contract.MetadataWorkload: account,
		contract.MetadataAddresses: address, contract.MetadataSecrets: contract.SecretsCluster,
	}
	for k, v := range more {
		all[k] = v
	}
	m, err := structpb.NewStruct(all)
	return &core.Node{Id: fmt.Sprintf("sidecar~%s~%s.%s~%[3]s.svc.cluster.local", address, account, namespace), Metadata: m}, err
}

// used and usedEndpoints are the names of the cluster and the endpoints to which a proxy that uses a service
// subscribes.
const used, usedEndpoints = "http|10.100.0.1:80", "outbound|80||filler-0." + harness.Namespace + ".svc.cluster.local"

// firstConfiguration subscribes as a new proxy does, and returns nil when it has received all resources.
func firstConfiguration(ctx context.Context, connection *grpc.ClientConn, node *core.Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for _, r := range []*discovery.DeltaDiscoveryRequest{
		{Node: node, TypeUrl: xds.ClusterType},
		{TypeUrl: xds.ListenerType},
		{TypeUrl: xds.ClusterType, ResourceNamesSubscribe: []string{used}},
		{TypeUrl: xds.EndpointType, ResourceNamesSubscribe: []string{usedEndpoints}},
	} {
		if err := s.Send(r); err != nil {
			_, err := s.Recv() // returns the reason for the failed Send
			return err
		}
	}
	missing := map[string]bool{xds.ClusterType + used: true, xds.EndpointType + usedEndpoints: true, xds.ListenerType: true}
	for len(missing) > 0 {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		for _, r := range m.GetResources() {
			delete(missing, m.GetTypeUrl()+r.GetName())
			delete(missing, m.GetTypeUrl())
		}
		if err := s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}); err != nil {
			return err
		}
	}
	return nil
}
