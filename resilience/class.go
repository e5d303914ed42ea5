package resilience

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
)

// A Class is the kind of a try's result. It determines whether the call may be repeated and whether the circuit
// breaker counts a failure:
//
//	class     repeated                  breaker
//	Answered  no                        success
//	Absent    if idempotent or Single   failure, but not within Options.Start
//	Unsent    if idempotent or Single   failure
//	Lost      if idempotent             failure
//	Busy      if idempotent             success: it is alive
//	Failed    no                        failure
type Class int

const (
	Answered Class = iota // the dependency works; also "404 Not Found"
	Absent                // the dependency does not exist (yet): connection refused, unreachable, name not found
	Unsent                // the request was not sent for another reason, such as a time-out of the dial
	Lost                  // the request was sent, and whether it was processed is unknown: reset, time-out, 502, 503, 504
	Busy                  // the dependency wants fewer requests: 429
	Failed                // the request failed, and would fail again: 500, an invalid certificate
)

// A repetition is the condition under which a call may be repeated after a result.
type repetition int

const (
	never repetition = iota
	ifIdempotent
	ifUnsent // the call is idempotent, or makes only one request (which was not sent)
)

// classes is the table of [Class].
var classes = [...]struct {
	name   string
	repeat repetition
	fails  bool
}{
	Answered: {"answered", never, false},
	Absent:   {"absent", ifUnsent, true},
	Unsent:   {"unsent", ifUnsent, true},
	Lost:     {"lost", ifIdempotent, true},
	Busy:     {"busy", ifIdempotent, false},
	Failed:   {"failed", never, true},
}

func (c Class) String() string {
	if c < 0 || int(c) >= len(classes) {
		return "unknown"
	}
	return classes[c].name
}

// Classify is the default of Options.Classify. It recognises errors of package net and of TLS; any
// other error is Lost.
func Classify(err error) Class {
	if err == nil {
		return Answered
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return Absent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		if isAbsent(err) {
			return Absent
		}
		return Unsent
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return Failed
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return Failed
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return Failed
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return Failed
	}
	return Lost
}

// ClassifyHTTP is the default of HTTPOptions.Classify. Status 429 is Busy; 502, 503 and 504 are Lost.
// Other statuses from 500 on are Failed, except 501 and 505: they are Answered, because the server does
// not know the method or the version. Exactly one of resp and err is not nil.
func ClassifyHTTP(resp *http.Response, err error) Class {
	if err != nil {
		return Classify(err)
	}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		return Busy
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return Lost
	case code == http.StatusNotImplemented, code == http.StatusHTTPVersionNotSupported, code < 500:
		return Answered
	default:
		return Failed
	}
}
