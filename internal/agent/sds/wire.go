package sds

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"outrider.dev/internal/wire/rpc"
)

// The service, and what it tells.
const (
	Path    = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets"
	typeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Numbers of fields, from envoyproxy/envoy api/: service/discovery/v3/discovery.proto,
// google/rpc/status.proto, extensions/transport_sockets/tls/v3/{secret,common}.proto,
// config/core/v3/base.proto.
const (
	requestNames, requestType, requestNonce, requestError = 3, 4, 5, 6 // DiscoveryRequest
	statusMessage                                         = 2          // google.rpc.Status
	responseVersion, responseResources                    = 1, 2       // DiscoveryResponse
	responseType, responseNonce                           = 4, 5       // of the same
	anyType, anyValue                                     = 1, 2       // google.protobuf.Any
	secretName, secretCertificate, secretValidation       = 1, 2, 4    // Secret
	certificateChain, certificateKey                      = 1, 2       // TlsCertificate
	validationRoots                                       = 1          // CertificateValidationContext
	sourceBytes                                           = 2          // DataSource, inline
)

// A Secret is what Envoy gets under a name. Nothing prints it.
type Secret struct{ body []byte } // the fields of the message Secret besides its name

// Format hides it, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(secret)") }

// Certificate is a chain and its key, PEM.
func Certificate(chain, key []byte) Secret {
	both := field(field(nil, certificateChain, inline(chain)), certificateKey, inline(key))
	return Secret{field(nil, secretCertificate, both)}
}

// Roots are whom to trust, PEM.
func Roots(pem []byte) Secret {
	return Secret{field(nil, secretValidation, field(nil, validationRoots, inline(pem)))}
}

func inline(content []byte) []byte { return field(nil, sourceBytes, content) }

// field appends a field to a message.
func field[T string | []byte](to []byte, number protowire.Number, value T) []byte {
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), string(value))
}

// response is a message that tells secrets.
func response(version uint64, nonce string, secrets []named) []byte {
	out := field(nil, responseVersion, strconv.FormatUint(version, 10))
	for _, s := range secrets {
		value := append(field(nil, secretName, s.name), s.body...)
		out = field(out, responseResources, field(field(nil, anyType, typeURL), anyValue, value))
	}
	return field(field(out, responseType, typeURL), responseNonce, nonce)
}

// A request is what counts of a DiscoveryRequest.
type request struct {
	names   []string
	typeURL string
	nonce   string // of the answer that it is about; empty: about none
	refused bool   // that answer
	reason  string
}

// parseRequest reads a message. What it does not know, it leaves out.
func parseRequest(raw []byte) (q request, err error) {
	err = fields(raw, func(number protowire.Number, value []byte) error {
		switch number {
		case requestNames, requestType, requestNonce:
			if !utf8.Valid(value) {
				return fmt.Errorf("field %d is no UTF-8", number)
			}
		}
		switch number {
		case requestNames:
			q.names = append(q.names, string(value))
		case requestType:
			q.typeURL = string(value)
		case requestNonce:
			q.nonce = string(value)
		case requestError:
			q.refused = true
			return fields(value, func(number protowire.Number, value []byte) error {
				if number == statusMessage {
					q.reason = rpc.Line(string(value))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return request{}, fmt.Errorf("DiscoveryRequest: %w", err)
	}
	return q, nil
}

// fields gives each field of a message that is of bytes to see.
func fields(raw []byte, see func(protowire.Number, []byte) error) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(raw)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		if kind != protowire.BytesType {
			continue
		}
		if err := see(number, value); err != nil {
			return err
		}
	}
	return nil
}

func malformed(code int) error {
	return errors.New("no message of protobuf: " + protowire.ParseError(code).Error())
}
