package resource

import (
	"path"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"outrider.dev/internal/xds"
)

// alpn marks mutual TLS of the mesh, so that the other end's proxy knows it from the
// application's own. No protocol is chosen by it: whether HTTP/2 is spoken inside shows
// in the first bytes, as without TLS.
const alpn = "outrider"

// Names of a workload's secrets, and of their files (the agent has the same: package
// agent/envoy).
const (
	workloadSecret, workloadFile = "workload", "workload.json"
	rootsSecret, rootsFile       = "roots", "roots.json"
)

// secrets are where a proxy has its own from: a cluster, or files of a directory. The zero
// value is nowhere: it speaks no mutual TLS.
type secrets struct{ cluster, dir string }

func secretsOf(p *xds.Proxy) secrets {
	if name := p.Metadata[MetadataSecrets]; name != "" {
		return secrets{cluster: name}
	}
	return secrets{dir: strings.TrimSuffix(p.Metadata[MetadataCertificates], "/")}
}

func (s secrets) some() bool { return s != secrets{} }

// callTLS presents the workload's certificate and wants the other's to have one identity.
func callTLS(from secrets, sni, identity string) *core.TransportSocket {
	return tlsSocket(&tls.UpstreamTlsContext{
		Sni: sni,
		CommonTlsContext: common(from, &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_Exact{Exact: identity},
		}, alpn),
	})
}

// serveTLS presents the workload's certificate and wants any identity of the trust
// domain: who may call is not decided here.
func serveTLS(from secrets, trustDomain string) *core.TransportSocket {
	return tlsSocket(&tls.DownstreamTlsContext{
		RequireClientCertificate: yes(),
		CommonTlsContext: common(from, &matcher.StringMatcher{
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

func common(from secrets, uri *matcher.StringMatcher, protocols ...string) *tls.CommonTlsContext {
	return &tls.CommonTlsContext{
		AlpnProtocols:                  protocols,
		TlsParams:                      &tls.TlsParameters{TlsMinimumProtocolVersion: tls.TlsParameters_TLSv1_2},
		TlsCertificateSdsSecretConfigs: []*tls.SdsSecretConfig{from.secret(workloadSecret, workloadFile)},
		ValidationContextType: &tls.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tls.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tls.CertificateValidationContext{
					MatchTypedSubjectAltNames: []*tls.SubjectAltNameMatcher{{
						SanType: tls.SubjectAltNameMatcher_URI, Matcher: uri,
					}},
				},
				ValidationContextSdsSecretConfig: from.secret(rootsSecret, rootsFile),
			},
		},
	}
}

// secret is one of a proxy's. All that name it share one subscription, and with it what
// the bootstrap names: so all that is said of it must be the same.
func (s secrets) secret(name, file string) *tls.SdsSecretConfig {
	source := &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3}
	if s.cluster == "" {
		source.ConfigSourceSpecifier = &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{
			Path: path.Join(s.dir, file), WatchedDirectory: &core.WatchedDirectory{Path: s.dir},
		}}
		return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
	}
	source.InitialFetchTimeout = durationpb.New(0)
	source.ConfigSourceSpecifier = &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
		ApiType: core.ApiConfigSource_GRPC, TransportApiVersion: core.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: &core.GrpcService_EnvoyGrpc{
			ClusterName: s.cluster,
			RetryPolicy: &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
				BaseInterval: durationpb.New(10 * time.Millisecond), MaxInterval: durationpb.New(time.Second),
			}},
		}}}},
	}}
	return &tls.SdsSecretConfig{Name: name, SdsConfig: source}
}
