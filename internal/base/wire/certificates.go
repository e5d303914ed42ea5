package wire

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// Istio's certificate service. Its source is istio.io/api, security/v1alpha1/ca.proto
// (package istio.v1.auth):
//
//	message IstioCertificateRequest {
//	  string csr = 1;
//	  int64 validity_duration = 3;          // seconds
//	  google.protobuf.Struct metadata = 4;
//	}
//	message IstioCertificateResponse {
//	  repeated string cert_chain = 1;       // leaf first, root last
//	}
//
// Field 2 of the request was subject_id, which servers no longer read.
const (
	CertificateService = "istio.v1.auth.IstioCertificateService"
	CertificateMethod  = "CreateCertificate"
	CertificatePath    = "/" + CertificateService + "/" + CertificateMethod
)

// Keys of a request's metadata that have a meaning in Istio.
const (
	// Impersonated requests a certificate for an identity other than the caller's. Istio allows it for
	// ztunnel; our control plane refuses it.
	Impersonated = "ImpersonatedIdentity"
	// CertSigner names the authority that is to sign, if there are several.
	CertSigner = "CertSigner"
)

// A CertificateRequest asks the control plane to sign a certificate.
type CertificateRequest struct {
	CSR      string        // PEM
	Life     time.Duration // whole seconds; 0: the server's default
	Metadata map[string]string
}

// A CertificateResponse contains the chain in PEM: the leaf first, the root last. An entry may hold several
// certificates, as in istio-csr's responses.
type CertificateResponse struct{ Chain []string }

const (
	fieldCSR, fieldLife, fieldMetadata = 1, 3, 4 // of the request
	fieldChain                         = 1       // of the response
	fieldFields                        = 1       // of a Struct: its map
	fieldKey, fieldValue               = 1, 2    // of an entry of a map
	fieldString                        = 3       // of a Value
)

// Marshal encodes the message.
func (r CertificateRequest) Marshal() []byte {
	b := AppendField(nil, fieldCSR, r.CSR)
	if s := int64(r.Life / time.Second); s != 0 {
		b = AppendVarint(b, fieldLife, uint64(s))
	}
	if len(r.Metadata) == 0 {
		return b
	}
	var fields []byte
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		value := AppendField(nil, fieldString, r.Metadata[key])
		fields = AppendField(fields, fieldFields, AppendField(AppendField(nil, fieldKey, key), fieldValue, value))
	}
	return AppendField(b, fieldMetadata, fields)
}

// maxLife is the maximum number of seconds that fits into a time.Duration.
const maxLife = int64(1<<63-1) / int64(time.Second)

// ParseCertificateRequest decodes a message. It keeps only strings of the metadata.
func ParseCertificateRequest(raw []byte) (CertificateRequest, error) {
	var r CertificateRequest
	err := Fields(raw, func(f Field) error {
		switch {
		case f.Number == fieldCSR && f.Kind == BytesField:
			r.CSR = string(f.Bytes)
			return checkUTF8("csr", f.Bytes)
		case f.Number == fieldLife && f.Kind == VarintField:
			s := int64(f.Varint)
			if s < 0 || s > maxLife {
				return fmt.Errorf("field validity_duration: %d; use 0 or more seconds", s)
			}
			r.Life = time.Duration(s) * time.Second
		case f.Number == fieldMetadata && f.Kind == BytesField:
			if r.Metadata == nil {
				r.Metadata = map[string]string{}
			}
			return parseMetadata(f.Bytes, r.Metadata)
		}
		return nil
	})
	if err != nil {
		return CertificateRequest{}, fmt.Errorf("request for a certificate: %w", err)
	}
	return r, nil
}

// parseMetadata decodes a google.protobuf.Struct.
func parseMetadata(raw []byte, into map[string]string) error {
	return Fields(raw, func(entry Field) error {
		if entry.Number != fieldFields || entry.Kind != BytesField {
			return nil
		}
		var key, value string
		isString := false
		err := Fields(entry.Bytes, func(f Field) error {
			switch {
			case f.Number == fieldKey && f.Kind == BytesField:
				key = string(f.Bytes)
			case f.Number == fieldValue && f.Kind == BytesField:
				return Fields(f.Bytes, func(f Field) error {
					if f.Number == fieldString && f.Kind == BytesField {
						value, isString = string(f.Bytes), true
					}
					return nil
				})
			}
			return nil
		})
		if isString {
			into[key] = value
		}
		return err
	})
}

// Marshal encodes the message.
func (r CertificateResponse) Marshal() []byte {
	var b []byte
	for _, c := range r.Chain {
		b = AppendField(b, fieldChain, c)
	}
	return b
}

// ParseCertificateResponse decodes a message.
func ParseCertificateResponse(raw []byte) (CertificateResponse, error) {
	var r CertificateResponse
	err := Fields(raw, func(f Field) error {
		if f.Number != fieldChain || f.Kind != BytesField {
			return nil
		}
		r.Chain = append(r.Chain, string(f.Bytes))
		return checkUTF8("cert_chain", f.Bytes)
	})
	if err != nil {
		return CertificateResponse{}, fmt.Errorf("response with a certificate: %w", err)
	}
	return r, nil
}

func checkUTF8(field string, value []byte) error {
	if !utf8.Valid(value) {
		return fmt.Errorf("field %s is not UTF-8", field)
	}
	return nil
}
