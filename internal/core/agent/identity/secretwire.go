package identity

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"outrider.dev/internal/base/wire"
)

// The service and the type of its resources.
const (
	secretsPath = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets"
	secretType  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Numbers of fields, from envoyproxy/envoy api/: service/discovery/v3/discovery.proto,
// google/rpc/status.proto, extensions/transport_sockets/tls/v3/{secret,common}.proto,
// config/core/v3/base.proto.
const (
	requestNames, requestType, requestNonce, requestError = 3, 4, 5, 6 // DiscoveryRequest
	statusMessage                                         = 2          // google.rpc.Status
	responseVersion, responseResources                    = 1, 2       // DiscoveryResponse
	responseType, responseNonce                           = 4, 5       // DiscoveryResponse
	anyType, anyValue                                     = 1, 2       // google.protobuf.Any
	secretName, secretCertificate, secretValidation       = 1, 2, 4    // Secret
	certificateChain, certificateKey                      = 1, 2       // TlsCertificate
	validationRoots                                       = 1          // CertificateValidationContext
	sourceBytes                                           = 2          // DataSource, inline
)

// A Secret is a resource for Envoy. It is never printed.
type Secret struct{ body []byte } // the fields of the message Secret besides its name

// Format hides the secret, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(secret)") }

// CertificateSecret returns a secret with a chain and its key, both PEM.
func CertificateSecret(chain, key []byte) Secret {
	both := wire.AppendField(wire.AppendField(nil, certificateChain, inline(chain)), certificateKey, inline(key))
	return Secret{wire.AppendField(nil, secretCertificate, both)}
}

// RootsSecret returns a secret with the trusted roots, PEM.
func RootsSecret(pem []byte) Secret {
	return Secret{wire.AppendField(nil, secretValidation, wire.AppendField(nil, validationRoots, inline(pem)))}
}

func inline(content []byte) []byte { return wire.AppendField(nil, sourceBytes, content) }

// discoveryResponse encodes a DiscoveryResponse with secrets.
func discoveryResponse(version uint64, nonce string, secrets []named) []byte {
	out := wire.AppendField(nil, responseVersion, strconv.FormatUint(version, 10))
	for _, s := range secrets {
		value := append(wire.AppendField(nil, secretName, s.name), s.body...)
		out = wire.AppendField(out, responseResources, wire.AppendField(wire.AppendField(nil, anyType, secretType), anyValue, value))
	}
	return wire.AppendField(wire.AppendField(out, responseType, secretType), responseNonce, nonce)
}

// A discoveryRequest contains the fields of a DiscoveryRequest that the server uses.
type discoveryRequest struct {
	names   []string
	typeURL string
	nonce   string // of the response that it acknowledges or rejects; empty: none
	nack    bool
	reason  string // of the NACK
}

// parseDiscoveryRequest parses a message. It ignores other fields.
func parseDiscoveryRequest(raw []byte) (q discoveryRequest, err error) {
	err = wire.Fields(raw, func(f wire.Field) error {
		if f.Kind != wire.BytesField {
			return nil
		}
		switch f.Number {
		case requestNames, requestType, requestNonce:
			if !utf8.Valid(f.Bytes) {
				return fmt.Errorf("field %d is not UTF-8", f.Number)
			}
		}
		switch f.Number {
		case requestNames:
			q.names = append(q.names, string(f.Bytes))
		case requestType:
			q.typeURL = string(f.Bytes)
		case requestNonce:
			q.nonce = string(f.Bytes)
		case requestError:
			q.nack = true
			return wire.Fields(f.Bytes, func(f wire.Field) error {
				if f.Number == statusMessage && f.Kind == wire.BytesField {
					q.reason = wire.Line(string(f.Bytes))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return discoveryRequest{}, fmt.Errorf("DiscoveryRequest: %w", err)
	}
	return q, nil
}
