// Package certs is Istio's certificate service as bytes: its name, its two messages, and
// nothing that a server or a client would have to link.
//
// The source of the names and numbers is istio.io/api, security/v1alpha1/ca.proto
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
// Field 2 of the request was subject_id, which servers do not read any more.
package certs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The service.
const (
	Service = "istio.v1.auth.IstioCertificateService"
	Method  = "CreateCertificate"
	Path    = "/" + Service + "/" + Method
)

// Keys of a request's metadata that mean something to Istio.
const (
	// Impersonated asks for another identity than the caller's, which ztunnel may and
	// nobody does here.
	Impersonated = "ImpersonatedIdentity"
	// CertSigner names one of several authorities.
	CertSigner = "CertSigner"
)

// A Request asks for a certificate.
type Request struct {
	CSR      string        // PEM
	Life     time.Duration // whole seconds on the wire; 0: as long as the server likes
	Metadata map[string]string
}

// A Response is the chain, PEM: the leaf first, the root last. An entry may hold more
// than one certificate: istio-csr's do.
type Response struct{ Chain []string }

const (
	fieldCSR, fieldLife, fieldMetadata = 1, 3, 4 // of the request
	fieldChain                         = 1       // of the response
	fieldFields                        = 1       // of a Struct: its map
	fieldKey, fieldValue               = 1, 2    // of an entry of a map
	fieldString                        = 3       // of a Value
)

// Marshal returns the message.
func (r Request) Marshal() []byte {
	b := protowire.AppendTag(nil, fieldCSR, protowire.BytesType)
	b = protowire.AppendString(b, r.CSR)
	if s := int64(r.Life / time.Second); s != 0 {
		b = protowire.AppendTag(b, fieldLife, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(s))
	}
	if len(r.Metadata) == 0 {
		return b
	}
	var fields []byte
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		value := protowire.AppendString(protowire.AppendTag(nil, fieldString, protowire.BytesType), r.Metadata[key])
		entry := protowire.AppendString(protowire.AppendTag(nil, fieldKey, protowire.BytesType), key)
		entry = protowire.AppendBytes(protowire.AppendTag(entry, fieldValue, protowire.BytesType), value)
		fields = protowire.AppendBytes(protowire.AppendTag(fields, fieldFields, protowire.BytesType), entry)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, fieldMetadata, protowire.BytesType), fields)
}

// maxLife keeps seconds within a time.Duration.
const maxLife = int64(1<<63-1) / int64(time.Second)

// ParseRequest reads a message. Of its metadata only texts are kept.
func ParseRequest(raw []byte) (Request, error) {
	var r Request
	err := fields(raw, func(number protowire.Number, bytes []byte, varint uint64) error {
		switch {
		case number == fieldCSR && bytes != nil:
			r.CSR = string(bytes)
			return text("csr", bytes)
		case number == fieldLife && bytes == nil:
			if s := int64(varint); s < 0 || s > maxLife {
				return fmt.Errorf("field validity_duration: %d; use 0 or more seconds", s)
			}
			r.Life = time.Duration(varint) * time.Second
		case number == fieldMetadata && bytes != nil:
			if r.Metadata == nil {
				r.Metadata = map[string]string{}
			}
			return metadata(bytes, r.Metadata)
		}
		return nil
	})
	if err != nil {
		return Request{}, fmt.Errorf("request for a certificate: %w", err)
	}
	return r, nil
}

func metadata(raw []byte, into map[string]string) error {
	return fields(raw, func(number protowire.Number, entry []byte, _ uint64) error {
		if number != fieldFields || entry == nil {
			return nil
		}
		var key, value string
		isText := false
		err := fields(entry, func(number protowire.Number, bytes []byte, _ uint64) error {
			switch {
			case number == fieldKey && bytes != nil:
				key = string(bytes)
			case number == fieldValue && bytes != nil:
				return fields(bytes, func(number protowire.Number, bytes []byte, _ uint64) error {
					if number == fieldString && bytes != nil {
						value, isText = string(bytes), true
					}
					return nil
				})
			}
			return nil
		})
		if isText {
			into[key] = value
		}
		return err
	})
}

// Marshal returns the message.
func (r Response) Marshal() []byte {
	var b []byte
	for _, c := range r.Chain {
		b = protowire.AppendString(protowire.AppendTag(b, fieldChain, protowire.BytesType), c)
	}
	return b
}

// ParseResponse reads a message.
func ParseResponse(raw []byte) (Response, error) {
	var r Response
	err := fields(raw, func(number protowire.Number, bytes []byte, _ uint64) error {
		if number != fieldChain || bytes == nil {
			return nil
		}
		r.Chain = append(r.Chain, string(bytes))
		return text("cert_chain", bytes)
	})
	if err != nil {
		return Response{}, fmt.Errorf("answer with a certificate: %w", err)
	}
	return r, nil
}

func text(field string, value []byte) error {
	if !utf8.Valid(value) {
		return fmt.Errorf("field %s is no UTF-8", field)
	}
	return nil
}

// fields gives each field of a message to see: bytes is nil unless it is of that kind.
// What has another kind than a varint or bytes is left out: a newer message may have it.
func fields(raw []byte, see func(number protowire.Number, bytes []byte, varint uint64) error) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		var bytes []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(raw)
			if bytes == nil {
				bytes = []byte{}
			}
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(raw)
		default:
			n = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		if kind != protowire.BytesType && kind != protowire.VarintType {
			continue
		}
		if err := see(number, bytes, varint); err != nil {
			return err
		}
	}
	return nil
}

func malformed(code int) error {
	return errors.New("no message of protobuf: " + protowire.ParseError(code).Error())
}
