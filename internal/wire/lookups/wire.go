// Package lookups is the service that answers for the mesh's names, as bytes: its name, its
// two messages, and nothing that a server or a client would have to link.
//
//	package outrider.v1;
//	service Names { rpc Resolve(ResolveRequest) returns (ResolveResponse); }
//
//	message ResolveRequest { repeated string name = 1; }
//	message ResolveResponse { repeated Answer answer = 1; }  // one for each name, in order
//	message Answer {
//	  bool known = 1;              // it is of the mesh, and the caller may see it
//	  repeated string alias = 2;   // whose name it is in full, and where that leads, in order
//	  repeated bytes address = 3;  // 4 or 16 bytes each
//	  string outside = 4;          // not of the mesh: where the last alias leads
//	  uint32 ttl = 5;              // seconds, also for a name that is not known
//	}
package lookups

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The service.
const (
	Service = "outrider.v1.Names"
	Method  = "Resolve"
	Path    = "/" + Service + "/" + Method
)

// Bounds of a message.
const (
	MaxNames     = 16   // of a request
	MaxName      = 255  // bytes, RFC 1035 section 2.3.4
	MaxAliases   = 9    // of an answer: a chain that is longer is a circle
	MaxAddresses = 1000 // of an answer: of IPv6, they fit into one message of DNS
	maxTTL       = 1 << 24
)

// A Request asks for names, each without a dot at its end.
type Request struct{ Names []string }

// A Response has an Answer for each name, in their order.
type Response struct{ Answers []Answer }

// An Answer is what a name stands for.
type Answer struct {
	// Known: it is of the mesh, and the caller may see it. Of another only TTL counts.
	Known bool
	// Aliases are its full name, if it is known, and the names that this one leads to.
	Aliases   []string
	Addresses []netip.Addr // of the last alias, of both families
	Outside   string       // where the last alias leads, if that is not of the mesh
	TTL       time.Duration
}

const (
	fieldName   = 1 // of the request
	fieldAnswer = 1 // of the response

	fieldKnown, fieldAlias, fieldAddress, fieldOutside, fieldTTL = 1, 2, 3, 4, 5 // of an answer
)

// Marshal returns the message.
func (r Request) Marshal() []byte {
	var b []byte
	for _, name := range r.Names {
		b = text(b, fieldName, name)
	}
	return b
}

// ParseRequest reads a message.
func ParseRequest(raw []byte) (Request, error) {
	var r Request
	err := fields(raw, func(f field) (err error) {
		if f.number != fieldName || f.kind != protowire.BytesType {
			return nil
		}
		if len(r.Names) == MaxNames {
			return fmt.Errorf("field name: more than %d", MaxNames)
		}
		name, err := f.name("name")
		r.Names = append(r.Names, name)
		return err
	})
	if err != nil {
		return Request{}, fmt.Errorf("question for names: %w", err)
	}
	return r, nil
}

// Marshal returns the message.
func (r Response) Marshal() []byte {
	var b []byte
	for _, a := range r.Answers {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldAnswer, protowire.BytesType), a.marshal())
	}
	return b
}

func (a Answer) marshal() []byte {
	var b []byte
	if a.Known {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldKnown, protowire.VarintType), 1)
	}
	for _, alias := range a.Aliases {
		b = text(b, fieldAlias, alias)
	}
	for _, address := range a.Addresses {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldAddress, protowire.BytesType), address.AsSlice())
	}
	if a.Outside != "" {
		b = text(b, fieldOutside, a.Outside)
	}
	return protowire.AppendVarint(protowire.AppendTag(b, fieldTTL, protowire.VarintType), uint64(a.TTL/time.Second))
}

// ParseResponse reads a message.
func ParseResponse(raw []byte) (Response, error) {
	var r Response
	err := fields(raw, func(f field) error {
		if f.number != fieldAnswer || f.kind != protowire.BytesType {
			return nil
		}
		if len(r.Answers) == MaxNames {
			return fmt.Errorf("field answer: more than %d", MaxNames)
		}
		var a Answer
		if err := fields(f.bytes, a.set); err != nil {
			return err
		}
		r.Answers = append(r.Answers, a)
		return nil
	})
	if err != nil {
		return Response{}, fmt.Errorf("answer about names: %w", err)
	}
	return r, nil
}

// set takes over one field.
func (a *Answer) set(f field) (err error) {
	switch {
	case f.number == fieldKnown && f.kind == protowire.VarintType:
		a.Known = f.varint != 0
	case f.number == fieldTTL && f.kind == protowire.VarintType:
		a.TTL = time.Duration(min(f.varint, maxTTL)) * time.Second
	case f.kind != protowire.BytesType:
	case f.number == fieldAlias:
		if len(a.Aliases) == MaxAliases {
			return fmt.Errorf("field alias: more than %d", MaxAliases)
		}
		alias, err := f.name("alias")
		a.Aliases = append(a.Aliases, alias)
		return err
	case f.number == fieldOutside:
		a.Outside, err = f.name("outside")
	case f.number == fieldAddress:
		address, ok := netip.AddrFromSlice(f.bytes)
		if !ok {
			return fmt.Errorf("field address: %d bytes; want 4 or 16", len(f.bytes))
		}
		if len(a.Addresses) == MaxAddresses {
			return fmt.Errorf("field address: more than %d", MaxAddresses)
		}
		a.Addresses = append(a.Addresses, address)
	}
	return err
}

func text(b []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

// A field of a message: bytes or varint, as its kind says.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	varint uint64
}

// name is the value of a field that is a name of DNS.
func (f field) name(what string) (string, error) {
	if len(f.bytes) == 0 || len(f.bytes) > MaxName || !utf8.Valid(f.bytes) {
		return "", fmt.Errorf("field %s: %d bytes; want a name of DNS, of 1 to %d bytes", what, len(f.bytes), MaxName)
	}
	return string(f.bytes), nil
}

// fields gives each field of a message to see. What is neither a varint nor bytes is left
// out: a newer message may have it.
func fields(raw []byte, see func(field) error) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		f := field{number: number, kind: kind}
		switch kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(raw)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(raw)
		default:
			n = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		if err := see(f); err != nil {
			return err
		}
	}
	return nil
}

func malformed(code int) error {
	return errors.New("no message of protobuf: " + protowire.ParseError(code).Error())
}
