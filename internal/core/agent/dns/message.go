package dns

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/base/wire"
)

// Constants of DNS messages that package dnsmessage does not define.
const (
	typeIXFR = dnsmessage.Type(251)

	headerSize = 12
	smallest   = 512 // bytes over UDP that every client accepts
)

// A query is a message with one question.
type query struct {
	raw      []byte // the whole message
	question []byte // its question, as in raw
	header   dnsmessage.Header
	parsed   dnsmessage.Question // zero if a label of the name contains a dot
	name     string              // the queried name, in lower case, without the final dot
	size     int                 // largest allowed answer
	edns     bool
}

// parse reads a query. A code other than 0 is the response code for an unsupported query. ok is false if the
// message is not a query.
func parse(raw []byte, tcp bool) (q query, code dnsmessage.RCode, ok bool) {
	q = query{raw: raw, size: smallest}
	if tcp {
		q.size = maxMessage
	}
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(raw); err != nil || q.header.Response {
		return q, 0, false
	}
	if q.header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	if q.question = questionOf(raw); q.question == nil {
		return q, dnsmessage.RCodeFormatError, true
	}
	if parsed, err := p.Question(); err == nil {
		q.parsed = parsed
		q.name = strings.ToLower(strings.TrimSuffix(parsed.Name.String(), "."))
		q.options(&p, tcp)
	}
	if q.parsed.Type == dnsmessage.TypeAXFR || q.parsed.Type == typeIXFR {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	return q, 0, true
}

// options reads the client's maximum answer size from its EDNS record.
func (q *query) options(p *dnsmessage.Parser, tcp bool) {
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns = true
			if !tcp {
				q.size = max(smallest, int(h.Class))
			}
			return
		}
		if p.SkipAdditional() != nil {
			return
		}
	}
}

// questionOf returns the bytes of a message's question, if it has exactly one.
func questionOf(raw []byte) []byte {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw[4:]) != 1 {
		return nil
	}
	at := headerSize
	for at < len(raw) && raw[at] != 0 {
		if raw[at] > 63 { // a compression pointer; the first name has nothing to point to
			return nil
		}
		at += 1 + int(raw[at])
	}
	at += 1 + 4
	if at > len(raw) {
		return nil
	}
	return raw[headerSize:at]
}

// answers reports whether raw can be the answer to a query with this ID and question. A server may leave the
// question out of an error response.
func answers(raw []byte, id uint16, question []byte) bool {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != id || raw[2]&0x80 == 0 {
		return false
	}
	if binary.BigEndian.Uint16(raw[4:]) == 0 {
		return codeOf(raw) != dnsmessage.RCodeSuccess
	}
	return bytes.EqualFold(questionOf(raw), question)
}

func codeOf(raw []byte) dnsmessage.RCode { return dnsmessage.RCode(raw[3] & 0xf) }
func isTruncated(raw []byte) bool        { return raw[2]&2 != 0 }

// isAddress reports whether q asks for IP addresses (A or AAAA).
func (q query) isAddress() bool {
	return q.parsed.Class == dnsmessage.ClassINET && (q.parsed.Type == dnsmessage.TypeA || q.parsed.Type == dnsmessage.TypeAAAA)
}

// fit adapts a server's answer for the client: it sets the client's ID, and truncates the answer to
// the client's size.
func (q query) fit(raw []byte) []byte {
	if len(raw) > q.size {
		return q.reply(codeOf(raw), nil, true)
	}
	binary.BigEndian.PutUint16(raw, q.header.ID)
	return raw
}

func record(name dnsmessage.Name, ttl time.Duration, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: uint32(max(1, ttl/time.Second))},
		Body:   body,
	}
}

// fail returns a response without records.
func (q query) fail(code dnsmessage.RCode) []byte { return q.reply(code, nil, false) }

// answer returns a response with records, truncated if they do not fit.
func (q query) answer(code dnsmessage.RCode, records []dnsmessage.Resource) []byte {
	out := q.reply(code, records, false)
	if len(out) > q.size {
		return q.reply(code, nil, true)
	}
	return out
}

// reply writes a response, with EDNS if the client used it. If the records cannot be written, the
// response is a failure.
func (q query) reply(code dnsmessage.RCode, records []dnsmessage.Resource, truncated bool) []byte {
	h := dnsmessage.Header{ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RecursionDesired: q.header.RecursionDesired,
		RecursionAvailable: true, CheckingDisabled: q.header.CheckingDisabled, RCode: code, Truncated: truncated}
	if q.parsed.Name.Length == 0 || q.question == nil {
		return q.head(h)
	}
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{q.parsed}, Answers: records}
	if q.edns {
		opt := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
		opt.Header.SetEDNS0(maxQuery, dnsmessage.RCodeSuccess, false) // only extended codes cause an error
		m.Additionals = []dnsmessage.Resource{opt}
	}
	out, err := m.AppendPack(make([]byte, 0, smallest))
	if err != nil {
		h.RCode = dnsmessage.RCodeServerFailure
		return q.head(h)
	}
	return out
}

// head returns a response without records: the header, and the question as received.
func (q query) head(h dnsmessage.Header) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	if q.question != nil {
		binary.BigEndian.PutUint16(out[4:], 1)
		out = append(out, q.question...)
	}
	return out
}

// chain returns the alias records that lead from the queried name to the last alias of an answer,
// and the last alias itself.
func (q query) chain(a wire.Answer, ttl time.Duration) (records []dnsmessage.Resource, last dnsmessage.Name, err error) {
	last = q.parsed.Name
	for _, alias := range append(a.Aliases[:len(a.Aliases):len(a.Aliases)], a.Outside) {
		if alias == "" || strings.EqualFold(alias+".", last.String()) {
			continue
		}
		to, err := dnsmessage.NewName(alias + ".")
		if err != nil {
			return nil, last, err
		}
		records, last = append(records, record(last, ttl, &dnsmessage.CNAMEResource{CNAME: to})), to
	}
	return records, last, nil
}

// addresses returns the address records of a name for the queried family.
func (q query) addresses(name dnsmessage.Name, all []netip.Addr, ttl time.Duration) (records []dnsmessage.Resource) {
	for _, a := range all {
		switch a = a.Unmap(); {
		case a.Is4() && q.parsed.Type == dnsmessage.TypeA:
			records = append(records, record(name, ttl, &dnsmessage.AResource{A: a.As4()}))
		case a.Is6() && q.parsed.Type == dnsmessage.TypeAAAA:
			records = append(records, record(name, ttl, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	return records
}
