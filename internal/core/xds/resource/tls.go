package resource

import (
	"path"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// alpn marks the mesh's mutual TLS, so that the server's proxy can distinguish it from TLS of the
// application. It does not select a protocol: HTTP/2 is detected from the first bytes, as without TLS.
const alpn = "outrider"

// secrets is the source of a proxy's secrets: the cluster of our agent or of Istio's, or a directory of
// files. The zero value means that the proxy has no mutual TLS.
type secrets struct {
	agent, istio bool
	dir          string
}

func secretsOf(p *xds.Proxy) secrets {
	switch {
	case p.Metadata[contract.MetadataSecrets] == contract.SecretsCluster:
		return secrets{agent: true}
	case p.IstioAgent():
		return secrets{istio: true}
	}
	return secrets{dir: strings.TrimSuffix(p.Metadata[contract.MetadataCertificates], "/")}
}

func (s secrets) configured() bool { return s != secrets{} }

// upstreamTLS presents the workload's certificate, and requires one identity of the server.
func upstreamTLS(from secrets, sni, identity string) *core.TransportSocket {
	return tlsSocket(&tls.UpstreamTlsContext{
		Sni: sni,
		CommonTlsContext: commonTLS(from, &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_Exact{Exact: identity},
		}, alpn),
	})
}

// downstreamTLS presents the workload's certificate, and accepts any identity in the trust domain. It
// does not authorize.
func downstreamTLS(from secrets, trustDomain string) *core.TransportSocket {
	return tlsSocket(&tls.DownstreamTlsContext{
		RequireClientCertificate: on(),
		CommonTlsContext: commonTLS(from, &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_Prefix{Prefix: "spiffe://" + trustDomain + "/"},
		}),
	})
}

func tlsSocket(context proto.Message) *core.TransportSocket {
	return &core.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: typed(context)},
	}
}

func commonTLS(from secrets, uri *matcher.StringMatcher, protocols ...string) *tls.CommonTlsContext {
	return &tls.CommonTlsContext{
		AlpnProtocols:                  protocols,
		TlsParams:                      &tls.TlsParameters{TlsMinimumProtocolVersion: tls.TlsParameters_TLSv1_2},
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

func (s secrets) workload() *tls.SdsSecretConfig {
	return s.secret(contract.WorkloadSecret, contract.WorkloadSecretFile, contract.IstioWorkloadSecret)
}

func (s secrets) roots() *tls.SdsSecretConfig {
	return s.secret(contract.RootsSecret, contract.RootsSecretFile, contract.IstioRootsSecret)
}

// secret returns the configuration of one secret. All users of a secret share one subscription if their
// configurations are equal, including the bootstrap's. For Istio's agent it equals the configuration
// that istiod sends.
func (s secrets) secret(name, file, istioName string) *tls.SdsSecretConfig {
	source := &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3}
	if !s.agent && !s.istio {
		source.ConfigSourceSpecifier = &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{
			Path: path.Join(s.dir, file), WatchedDirectory: &core.WatchedDirectory{Path: s.dir},
		}}
		return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
	}
	served := &core.GrpcService_EnvoyGrpc{ClusterName: contract.SecretsCluster}
	if s.istio {
		name = istioName
	} else {
		served.RetryPolicy = &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
			BaseInterval: duration(contract.LocalRetryBase), MaxInterval: duration(contract.ControlPlaneRetryMax),
		}}
	}
	source.InitialFetchTimeout = duration(0)
	source.ConfigSourceSpecifier = &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
		ApiType: core.ApiConfigSource_GRPC, TransportApiVersion: core.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: served}}},
	}}
	return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
}
