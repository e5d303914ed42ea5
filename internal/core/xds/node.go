package xds

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
)

// grpcAgents is the prefix of the user agents of gRPC clients: "gRPC Go", "gRPC C-core linux".
const grpcAgents = "gRPC "

// A NodeID contains the parts of a proxy's ID, which has Istio's form: kind~address~name.namespace~domain.
type NodeID struct {
	Address   netip.Addr
	Name      string // of the pod
	Namespace string
}

// ParseNodeID parses a proxy's ID. For an ID without "~", which has another form, it returns the zero NodeID.
func ParseNodeID(id string) (NodeID, error) {
	if !strings.Contains(id, "~") {
		return NodeID{}, nil
	}
	const want = "must be kind~address~name.namespace~domain"
	parts := strings.Split(id, "~")
	if len(parts) != 4 {
		return NodeID{}, fmt.Errorf("node.id: %q has %d parts; %s", id, len(parts), want)
	}
	address, err := netip.ParseAddr(parts[1])
	if err != nil {
		return NodeID{}, fmt.Errorf("node.id: %q: %q is not an IP address; %s", id, parts[1], want)
	}
	dot := strings.LastIndexByte(parts[2], '.') // a pod's name may contain dots, a namespace may not
	if dot < 1 || dot == len(parts[2])-1 {
		return NodeID{}, fmt.Errorf("node.id: %q: %q is not name.namespace; %s", id, parts[2], want)
	}
	if parts[0] == "" {
		return NodeID{}, fmt.Errorf("node.id: %q has no kind; %s", id, want)
	}
	return NodeID{Address: address, Name: parts[2][:dot], Namespace: parts[2][dot+1:]}, nil
}

// A Workload identifies the pods of one deployment.
type Workload struct {
	Namespace      string
	ServiceAccount string
	Name           string // empty: unknown
}

// Authenticate returns the namespace and service account of a stream's client. The claims in the node
// are compared with them afterwards.
type Authenticate func(ctx context.Context, node *core.Node) (Proxy, error)

// ByClaim trusts the claims in the node; it is for plaintext on loopback and for tests.
func ByClaim(_ context.Context, node *core.Node) (Proxy, error) {
	id, err := ParseNodeID(node.GetId())
	if err != nil {
		return Proxy{}, status.Error(codes.InvalidArgument, err.Error())
	}
	meta := metadata(node.GetMetadata())
	return Proxy{Namespace: cmp.Or(id.Namespace, meta[contract.MetadataNamespace]), ServiceAccount: meta[contract.MetadataServiceAccount]}, nil
}

// checkNode refuses a node that is too large to be read or stored.
func checkNode(node *core.Node) error {
	if node == nil {
		return status.Error(codes.InvalidArgument, "node: missing in the first request of the stream")
	}
	node.Extensions = nil // Envoy's list of extensions takes 60 kB or more
	if n := proto.Size(node); n > maxNode {
		return status.Errorf(codes.InvalidArgument, "node: %d bytes with its metadata; at most %d are accepted", n, maxNode)
	}
	if len(node.GetId()) > maxNodeID {
		return tooLong("node.id", node.GetId(), maxNodeID)
	}
	for _, key := range []string{contract.MetadataWorkload, contract.MetadataCertificates, contract.MetadataVersion} {
		if value := node.GetMetadata().GetFields()[key].GetStringValue(); len(value) > maxValue {
			return tooLong("node.metadata."+key, value, maxValue)
		}
	}
	return nil
}

// describe completes a proxy with its node's ID and metadata, and refuses claims that contradict its
// identity.
func describe(p Proxy, node *core.Node, protocol string) (*Proxy, Workload, error) {
	id, err := ParseNodeID(node.GetId())
	if err != nil {
		return nil, Workload{}, status.Error(codes.InvalidArgument, err.Error())
	}
	p.ID, p.Metadata = node.GetId(), metadata(node.GetMetadata())
	claims := []struct{ field, claimed, verified string }{
		{"node.id: namespace", id.Namespace, p.Namespace},
		{"node.metadata." + contract.MetadataNamespace, p.Metadata[contract.MetadataNamespace], p.Namespace},
		{"node.metadata." + contract.MetadataServiceAccount, p.Metadata[contract.MetadataServiceAccount], p.ServiceAccount},
	}
	for _, c := range claims {
		if c.claimed != "" && c.claimed != c.verified {
			return nil, Workload{}, status.Errorf(codes.PermissionDenied, "%s: the proxy %q claims %q, its identity has %q", c.field, p.ID, c.claimed, c.verified)
		}
	}
	p.Addresses = addresses(id, p.Metadata[contract.MetadataAddresses])
	p.Relayed = p.Metadata[contract.MetadataRelay] == "true"
	p.Envoy, p.BoringSSL = envoyVersion(node), tlsLibrary(node) == "BoringSSL"
	p.GRPC = strings.HasPrefix(node.GetUserAgentName(), grpcAgents)
	if !p.GRPC {
		if err := onDemand(&p, protocol); err != nil {
			return nil, Workload{}, err
		}
	}
	return &p, Workload{p.Namespace, p.ServiceAccount, p.Metadata[contract.MetadataWorkload]}, nil
}

// onDemand refuses a proxy that cannot subscribe on demand, and one that requests everything. Agents of the previous
// version relay the stream of such a proxy too, and their bootstrap has all that on-demand configuration needs, so their
// proxies get what they use: otherwise running pods would be refused as soon as their control plane is upgraded.
func onDemand(p *Proxy, protocol string) error {
	const next = "see docs/interop.md, An Envoy of your own"
	switch {
	case protocol != delta{}.name():
		return status.Errorf(codes.InvalidArgument, "the proxy %q subscribes to the state of the world, which only gRPC clients can: set api_type: DELTA_GRPC in its bootstrap, or ISTIO_DELTA_XDS=true for Istio's agent; %s", p.ID, next)
	case p.Metadata[contract.MetadataPush] == "full" && !p.Relayed:
		return status.Errorf(codes.InvalidArgument, "node.metadata.%s: the proxy %q asks for everything, which is not served any more: remove it, and enable internal listeners in its bootstrap; %s", contract.MetadataPush, p.ID, next)
	}
	return nil
}

// envoyVersion returns the version of an Envoy; empty for other clients.
func envoyVersion(node *core.Node) string {
	v := node.GetUserAgentBuildVersion().GetVersion()
	if node.GetUserAgentName() != "envoy" || v == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
}

// tlsLibrary returns the name of an Envoy's TLS library: "BoringSSL", "BoringSSL-FIPS" or another one; empty if it
// does not report it.
func tlsLibrary(node *core.Node) string {
	return node.GetUserAgentBuildVersion().GetMetadata().GetFields()["ssl.version"].GetStringValue()
}

// IstioAgent reports whether the proxy says that Istio's agent started it. Pods of other agents may have Istio's
// metadata as well, by ISTIO_META_ISTIO_VERSION, but those agents also report the source of their secrets.
func (p *Proxy) IstioAgent() bool {
	m := p.Metadata
	return m[contract.MetadataIstioVersion] != "" && m[contract.MetadataSecrets] == "" && m[contract.MetadataCertificates] == ""
}

// maxAddresses suffices for a machine with many networks; a pod has two addresses.
const maxAddresses = 64

// addresses returns the proxy's addresses without duplicates, the one in its ID first. It skips invalid
// ones and those beyond maxAddresses, because addresses only help to find the workload.
func addresses(id NodeID, list string) []netip.Addr {
	var out []netip.Addr
	seen := map[netip.Addr]bool{}
	add := func(a netip.Addr) {
		if a = a.Unmap(); a.IsValid() && !seen[a] && len(out) < maxAddresses {
			seen[a] = true
			out = append(out, a)
		}
	}
	add(id.Address)
	for text := range strings.SplitSeq(list, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			add(a)
		}
	}
	return out
}

// metadataKeys are the metadata that are read. Others are not stored, because some, like a pod's labels
// and annotations, may be long.
var metadataKeys = []string{
	contract.MetadataNamespace, contract.MetadataServiceAccount, contract.MetadataWorkload, contract.MetadataAddresses,
	contract.MetadataInterception, contract.MetadataPush, contract.MetadataPrewarm, contract.MetadataRenewed, contract.MetadataSecrets, contract.MetadataCertificates,
	contract.MetadataVersion, contract.MetadataIstioVersion, contract.MetadataDNSCapture,
	contract.MetadataRelay, contract.MetadataServerCert, contract.MetadataClientCert,
}

func metadata(s *structpb.Struct) map[string]string {
	out := map[string]string{}
	for _, key := range metadataKeys {
		if value := s.GetFields()[key].GetStringValue(); value != "" {
			out[key] = value
		}
	}
	return out
}
