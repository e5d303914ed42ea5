package resource

import (
	"path"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

// alpn marks mutual TLS of the mesh, so that the other end's proxy knows it from the
// application's own. No protocol is chosen by it: whether HTTP/2 is spoken inside shows
// in the first bytes, as without TLS.
const alpn = "outrider"

// The files that the agent keeps (package agent/envoy has the same names).
const (
	secretName, secretFile = "workload", "workload.json"
	rootsName, rootsFile   = "roots", "roots.json"
)

// callTLS presents the workload's certificate and wants the other's to have one identity.
func callTLS(certificates, sni, identity string) *core.TransportSocket {
	return tlsSocket(&tls.UpstreamTlsContext{
		Sni: sni,
		CommonTlsContext: common(certificates, &matcher.StringMatcher{
			MatchPattern: &matcher.StringMatcher_Exact{Exact: identity},
		}, alpn),
	})
}

// serveTLS presents the workload's certificate and wants any identity of the trust
// domain: who may call is not decided here.
func serveTLS(certificates, trustDomain string) *core.TransportSocket {
	return tlsSocket(&tls.DownstreamTlsContext{
		RequireClientCertificate: yes(),
		CommonTlsContext: common(certificates, &matcher.StringMatcher{
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

func common(dir string, uri *matcher.StringMatcher, protocols ...string) *tls.CommonTlsContext {
	return &tls.CommonTlsContext{
		AlpnProtocols:                  protocols,
		TlsParams:                      &tls.TlsParameters{TlsMinimumProtocolVersion: tls.TlsParameters_TLSv1_2},
		TlsCertificateSdsSecretConfigs: []*tls.SdsSecretConfig{secret(secretName, dir, secretFile)},
		ValidationContextType: &tls.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tls.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: &tls.CertificateValidationContext{
					MatchTypedSubjectAltNames: []*tls.SubjectAltNameMatcher{{
						SanType: tls.SubjectAltNameMatcher_URI, Matcher: uri,
					}},
				},
				ValidationContextSdsSecretConfig: secret(rootsName, dir, rootsFile),
			},
		},
	}
}

// secret is a file that Envoy watches: all that name it share one subscription.
func secret(name, dir, file string) *tls.SdsSecretConfig {
	return &tls.SdsSecretConfig{Name: name, SdsConfig: &core.ConfigSource{
		ResourceApiVersion: core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{
			Path: path.Join(dir, file), WatchedDirectory: &core.WatchedDirectory{Path: dir},
		}},
	}}
}
