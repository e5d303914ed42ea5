package identity

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds an answer: chains have some kilobytes.
const maxAnswer = 1 << 20

// prefix is in front of each message: a flag, and the length (gRPC over HTTP/2, section
// Length-Prefixed-Message).
const prefix = 5

func frame(message []byte) []byte {
	out := make([]byte, prefix, prefix+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}

// unframe returns the one message that a body has.
func unframe(body []byte) ([]byte, error) {
	if len(body) < prefix {
		return nil, fmt.Errorf("an answer of %d bytes, which is no message", len(body))
	}
	if body[0] != 0 {
		return nil, fmt.Errorf("a compressed answer (flag %d), which was not asked for", body[0])
	}
	switch n := uint64(binary.BigEndian.Uint32(body[1:])); {
	case n > uint64(len(body)-prefix):
		return nil, fmt.Errorf("an answer that ends after %d of %d bytes", len(body)-prefix, n)
	case n < uint64(len(body)-prefix):
		return nil, fmt.Errorf("an answer with %d bytes behind its message", uint64(len(body)-prefix)-n)
	}
	return body[prefix:], nil
}

// Statuses of gRPC that mean something to us.
const (
	statusOK                = 0
	statusDeadlineExceeded  = 4
	statusPermissionDenied  = 7
	statusResourceExhausted = 8
	statusUnimplemented     = 12
	statusUnavailable       = 14
	statusUnauthenticated   = 16
)

// verdict reads how a call ended. Where there is no body the status is in the headers,
// otherwise in the trailers.
func verdict(address string, res *http.Response) *Fault {
	if res.StatusCode != http.StatusOK {
		return fault(Broken, nil, "%s answers with HTTP status %d; is it a control plane's port?", address, res.StatusCode)
	}
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/grpc") {
		return fault(Broken, nil, "%s answers with content of type %q; is it a control plane's port?", address, kind)
	}
	from := res.Trailer
	if from.Get("Grpc-Status") == "" {
		from = res.Header
	}
	code, err := strconv.ParseUint(from.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return fault(Broken, nil, "%s answers without a gRPC status", address)
	}
	message := plain(from.Get("Grpc-Message"))
	switch code {
	case statusOK:
		return nil
	case statusUnauthenticated, statusPermissionDenied:
		return fault(Rejected, nil, "the control plane refuses this identity: %s", message)
	case statusUnavailable, statusDeadlineExceeded:
		return fault(Unreachable, nil, "the control plane %s cannot answer now: %s", address, message)
	case statusUnimplemented:
		return fault(Broken, nil, "%s has no certificate service: %s", address, message)
	case statusResourceExhausted:
		return fault(Broken, nil, "the control plane has too much to do: %s", message)
	}
	return fault(Broken, nil, "the control plane %s failed with status %d: %s", address, code, message)
}

// plain is a status message without its percent signs, on one line and not too long: it
// is somebody else's text, and is shown to people.
func plain(message string) string {
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	message = strings.ToValidUTF8(message, "?")
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, message)
	if len(message) > 500 {
		message = strings.ToValidUTF8(message[:500], "") + "..."
	}
	if message == "" {
		return "it does not say why"
	}
	return message
}

// timeout is a call's deadline as gRPC writes it: at most 8 digits and a unit.
func timeout(left time.Duration) string {
	if ms := left.Milliseconds(); ms < 1e8 {
		return strconv.FormatInt(max(ms, 1), 10) + "m"
	}
	return strconv.FormatInt(min(int64(left/time.Second), 99_999_999), 10) + "S"
}
