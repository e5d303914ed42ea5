// Package mtls determines which ports are called by mutual TLS, and makes the transport sockets of both ends: the
// client requires the one identity of its server, the server any identity of its trust domain.
package mtls

import (
	"path"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/message"
)

// ALPN marks the mesh's mutual TLS, so that the server's proxy can distinguish it from TLS of the
// application. It does not select a protocol: HTTP/2 is detected from the first bytes, as without TLS.
const ALPN = "outrider"

// Secrets is the source of a proxy's secrets: the SDS cluster of our agent or of Istio's agent, or a directory of
// files. The zero value means that the proxy has no mutual TLS.
type Secrets struct {
	agent, istio bool
	Dir          string
}

// SecretsOf returns the source of a proxy's secrets.
func SecretsOf(p *xds.Proxy) Secrets {
	switch {
	case p.Metadata[contract.MetadataSecrets] == contract.SecretsCluster:
		return Secrets{agent: true}
	case p.IstioAgent():
		return Secrets{istio: true}
	}
	return Secrets{Dir: strings.TrimSuffix(p.Metadata[contract.MetadataCertificates], "/")}
}

// Configured reports whether a proxy has mutual TLS.
func (s Secrets) Configured() bool { return s != Secrets{} }

// Upstream returns the transport socket of a client, which presents the workload's certificate and requires the
// server to have one identity. It offers TLS 1.3 and 1.2, whatever the mesh's servers accept: that is up to them, as
// in Istio. No session is resumed, see Downstream.
func Upstream(from Secrets, g Groups, sni, identity string) *core.TransportSocket {
	return message.TransportSocket("tls", &tls.UpstreamTlsContext{
		Sni:              sni,
		MaxSessionKeys:   wrapperspb.UInt32(0),
		CommonTlsContext: commonTLS(from, parameters(g, mesh.TLS12), message.Exactly(identity), ALPN),
	})
}

// Downstream returns the transport socket of a server, which presents the workload's certificate and accepts any
// identity in the trust domain, by TLS 1.3 or, if oldest allows it, 1.2. It does not authorize the client.
//
// Envoy does not verify a certificate again when a session is resumed, so a client would be let in after the end of its
// certificate. With TLS 1.3 a full handshake takes as many round trips as a resumption, and 3 % more processor time for
// each connection (BenchmarkTLS in test/mesh).
func Downstream(from Secrets, g Groups, oldest mesh.TLSVersion, trustDomain string) *core.TransportSocket {
	return message.TransportSocket("tls", &tls.DownstreamTlsContext{
		RequireClientCertificate:         wrapperspb.Bool(true),
		SessionTicketKeysType:            &tls.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true},
		DisableStatefulSessionResumption: true,
		CommonTlsContext:                 commonTLS(from, parameters(g, oldest), message.Prefixed("spiffe://"+trustDomain+"/")),
	})
}

// parameters states the newest version too, because an Envoy that is a client ends at 1.2 by default.
func parameters(g Groups, oldest mesh.TLSVersion) *tls.TlsParameters {
	out := &tls.TlsParameters{
		TlsMinimumProtocolVersion: tls.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tls.TlsParameters_TLSv1_3,
		EcdhCurves: g.list(),
	}
	if oldest == mesh.TLS13 {
		out.TlsMinimumProtocolVersion = tls.TlsParameters_TLSv1_3
	}
	return out
}

func commonTLS(from Secrets, p *tls.TlsParameters, uri *matcher.StringMatcher, protocols ...string) *tls.CommonTlsContext {
	return &tls.CommonTlsContext{
		AlpnProtocols:                  protocols,
		TlsParams:                      p,
		TlsCertificateSdsSecretConfigs: []*tls.SdsSecretConfig{from.workload()},
		ValidationContextType: &tls.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tls.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tls.CertificateValidationContext{
					MatchTypedSubjectAltNames: []*tls.SubjectAltNameMatcher{{
						SanType: tls.SubjectAltNameMatcher_URI, Matcher: uri,
					}},
				},
				ValidationContextSdsSecretConfig: from.roots(),
			},
		},
	}
}

func (s Secrets) workload() *tls.SdsSecretConfig {
	return s.secret(contract.WorkloadSecret, contract.WorkloadSecretFile, contract.IstioWorkloadSecret)
}

func (s Secrets) roots() *tls.SdsSecretConfig {
	return s.secret(contract.RootsSecret, contract.RootsSecretFile, contract.IstioRootsSecret)
}

// secret returns the configuration of one secret. All users of a secret share one subscription if their
// configurations are equal. For Istio's agent it equals the configuration that istiod sends.
func (s Secrets) secret(name, file, istioName string) *tls.SdsSecretConfig {
	source := &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3}
	if !s.agent && !s.istio {
		source.ConfigSourceSpecifier = &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{
			Path: path.Join(s.Dir, file), WatchedDirectory: &core.WatchedDirectory{Path: s.Dir},
		}}
		return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
	}
	served := &core.GrpcService_EnvoyGrpc{ClusterName: contract.SecretsCluster}
	if s.istio {
		name = istioName
	} else {
		served.RetryPolicy = &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
			BaseInterval: durationpb.New(contract.LocalRetryBase), MaxInterval: durationpb.New(contract.ControlPlaneRetryMax),
		}}
	}
	source.InitialFetchTimeout = durationpb.New(0)
	source.ConfigSourceSpecifier = &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
		ApiType: core.ApiConfigSource_GRPC, TransportApiVersion: core.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: served}}},
	}}
	return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
}
