package wire

import (
	"fmt"
	"net/netip"
	"time"
	"unicode/utf8"
)

// The service that resolves the mesh's names.
//
//	package outrider.v1;
//	service Names { rpc Resolve(ResolveRequest) returns (ResolveResponse); }
//
//	message ResolveRequest { repeated string name = 1; }
//	message ResolveResponse { repeated Answer answer = 1; }  // one for each name, in order
//	message Answer {
//	  bool known = 1;              // the mesh has the name, and the caller may see it
//	  repeated string alias = 2;   // the full name, and the names to which it leads, in order
//	  repeated bytes address = 3;  // 4 or 16 bytes each
//	  string outside = 4;          // the name outside the mesh to which the last alias leads
//	  uint32 ttl = 5;              // seconds, also for an unknown name
//	}
const (
	NamesService = "outrider.v1.Names"
	NamesMethod  = "Resolve"
	NamesPath    = "/" + NamesService + "/" + NamesMethod
)

// Limits of a message.
const (
	MaxNames     = 16   // per request
	MaxName      = 255  // bytes, RFC 1035 section 2.3.4
	MaxAliases   = 9    // per answer: a longer chain is a loop
	MaxAddresses = 1000 // per answer: as many IPv6 addresses as fit into one DNS message
	maxTTL       = 1 << 24
)

// A NamesRequest contains names without a dot at their end.
type NamesRequest struct{ Names []string }

// A NamesResponse contains an Answer for each name, in order.
type NamesResponse struct{ Answers []Answer }

// An Answer is the result for one name.
type Answer struct {
	// Known is true if the mesh has the name and the caller may see it. If it is false, only TTL is meaningful.
	Known bool
	// Aliases contains the full name, if it is known, followed by the names to which the full name leads.
	Aliases   []string
	Addresses []netip.Addr // the last alias's IPv4 and IPv6 addresses
	Outside   string       // the name outside the mesh to which the last alias leads, if any
	TTL       time.Duration
}

const (
	fieldName   = 1 // of the request
	fieldAnswer = 1 // of the response

	fieldKnown, fieldAlias, fieldAddress, fieldOutside, fieldTTL = 1, 2, 3, 4, 5 // of an answer
)

// Marshal encodes the message.
func (r NamesRequest) Marshal() []byte {
	var b []byte
	for _, name := range r.Names {
		b = AppendField(b, fieldName, name)
	}
	return b
}

// ParseNamesRequest decodes a message.
func ParseNamesRequest(raw []byte) (NamesRequest, error) {
	var r NamesRequest
	err := Fields(raw, func(f Field) (err error) {
		if f.Number != fieldName || f.Kind != BytesField {
			return nil
		}
		if len(r.Names) == MaxNames {
			return fmt.Errorf("field name: more than %d", MaxNames)
		}
		name, err := dnsName("name", f.Bytes)
		r.Names = append(r.Names, name)
		return err
	})
	if err != nil {
		return NamesRequest{}, fmt.Errorf("request for names: %w", err)
	}
	return r, nil
}

// Marshal encodes the message.
func (r NamesResponse) Marshal() []byte {
	var b []byte
	for _, a := range r.Answers {
		b = AppendField(b, fieldAnswer, a.marshal())
	}
	return b
}

func (a Answer) marshal() []byte {
	var b []byte
	if a.Known {
		b = AppendVarint(b, fieldKnown, 1)
	}
	for _, alias := range a.Aliases {
		b = AppendField(b, fieldAlias, alias)
	}
	for _, address := range a.Addresses {
		b = AppendField(b, fieldAddress, address.AsSlice())
	}
	if a.Outside != "" {
		b = AppendField(b, fieldOutside, a.Outside)
	}
	return AppendVarint(b, fieldTTL, uint64(a.TTL/time.Second))
}

// ParseNamesResponse decodes a message.
func ParseNamesResponse(raw []byte) (NamesResponse, error) {
	var r NamesResponse
	err := Fields(raw, func(f Field) error {
		if f.Number != fieldAnswer || f.Kind != BytesField {
			return nil
		}
		if len(r.Answers) == MaxNames {
			return fmt.Errorf("field answer: more than %d", MaxNames)
		}
		var a Answer
		if err := Fields(f.Bytes, a.set); err != nil {
			return err
		}
		r.Answers = append(r.Answers, a)
		return nil
	})
	if err != nil {
		return NamesResponse{}, fmt.Errorf("response with names: %w", err)
	}
	return r, nil
}

// set decodes one field and stores it in the answer.
func (a *Answer) set(f Field) (err error) {
	switch {
	case f.Number == fieldKnown && f.Kind == VarintField:
		a.Known = f.Varint != 0
	case f.Number == fieldTTL && f.Kind == VarintField:
		a.TTL = time.Duration(min(f.Varint, maxTTL)) * time.Second
	case f.Kind != BytesField:
	case f.Number == fieldAlias:
		if len(a.Aliases) == MaxAliases {
			return fmt.Errorf("field alias: more than %d", MaxAliases)
		}
		alias, err := dnsName("alias", f.Bytes)
		a.Aliases = append(a.Aliases, alias)
		return err
	case f.Number == fieldOutside:
		a.Outside, err = dnsName("outside", f.Bytes)
	case f.Number == fieldAddress:
		address, ok := netip.AddrFromSlice(f.Bytes)
		if !ok {
			return fmt.Errorf("field address: %d bytes; want 4 or 16", len(f.Bytes))
		}
		if len(a.Addresses) == MaxAddresses {
			return fmt.Errorf("field address: more than %d", MaxAddresses)
		}
		a.Addresses = append(a.Addresses, address)
	}
	return err
}

func dnsName(field string, value []byte) (string, error) {
	if len(value) == 0 || len(value) > MaxName || !utf8.Valid(value) {
		return "", fmt.Errorf("field %s: %d bytes; want a DNS name of 1 to %d bytes", field, len(value), MaxName)
	}
	return string(value), nil
}
