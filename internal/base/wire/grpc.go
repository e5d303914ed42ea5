package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Call is one unary call. The deadline of its context is sent to the server.
type Call struct {
	URL       string      // of the method: scheme://host:port/package.Service/Method
	Message   []byte      // the encoded protobuf message
	Header    http.Header // sent in addition to the headers that gRPC needs
	UserAgent string      // default "outrider-agent"
	Limit     int64       // maximum bytes of the answer; default 1 MiB
}

// A Code is the status code of a call (grpc/grpc doc/statuscodes.md).
type Code uint32

// The codes that callers distinguish.
const (
	OK                Code = 0
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Unimplemented     Code = 12
	Unavailable       Code = 14
	Unauthenticated   Code = 16
)

// A StatusError means that the server ended a call with a code other than OK.
type StatusError struct {
	Code    Code
	Message string // one line of at most about 500 bytes; may be empty
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("gRPC status %d", e.Code)
	}
	return fmt.Sprintf("gRPC status %d: %s", e.Code, e.Message)
}

// An AnswerError describes an answer that is not gRPC, or not one uncompressed message.
type AnswerError struct{ What string }

func (e *AnswerError) Error() string { return "the server answers with " + e.What }

func odd(format string, args ...any) error { return &AnswerError{fmt.Sprintf(format, args...)} }

// Do makes the call and returns the message of the answer. The error is a [*StatusError], an
// [*AnswerError], or the reason why there was no answer. The transport must speak only HTTP/2.
func (c Call) Do(ctx context.Context, transport http.RoundTripper) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(Frame(c.Message)))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.Header)
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", c.UserAgent)
	if c.UserAgent == "" {
		req.Header.Set("User-Agent", "outrider-agent")
	}
	if end, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", timeout(time.Until(end)))
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	limit := c.Limit
	if limit <= 0 {
		limit = 1 << 20
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1)) // the body must be read before the trailers
	if int64(len(body)) > limit {
		return nil, odd("more than %d bytes", limit)
	}
	if err != nil {
		return nil, err
	}
	if err := verdict(res); err != nil {
		return nil, err
	}
	return Unframe(body)
}

// verdict returns the error of a call. If there is no body, the status is in the headers; otherwise it is
// in the trailers.
func verdict(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return odd("HTTP status %d", res.StatusCode)
	}
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/grpc") {
		return odd("content of type %q", kind)
	}
	from := res.Trailer
	if from.Get("Grpc-Status") == "" {
		from = res.Header
	}
	code, err := strconv.ParseUint(from.Get("Grpc-Status"), 10, 32)
	switch {
	case err != nil:
		return odd("no gRPC status")
	case Code(code) != OK:
		return &StatusError{Code(code), plain(from.Get("Grpc-Message"))}
	}
	return nil
}

// prefixLen is the length of the prefix of each message: a flag and the message's length.
const prefixLen = 5

// Frame returns an uncompressed message with its prefix.
func Frame(message []byte) []byte {
	out := make([]byte, prefixLen, prefixLen+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}

// Unframe returns the only message of a body. The error is an [*AnswerError].
func Unframe(body []byte) ([]byte, error) {
	if len(body) < prefixLen {
		return nil, odd("%d bytes, which is no message", len(body))
	}
	if body[0] != 0 {
		return nil, odd("a compressed message (flag %d), which was not requested", body[0])
	}
	message := body[prefixLen:]
	switch n := uint64(binary.BigEndian.Uint32(body[1:])); {
	case n > uint64(len(message)):
		return nil, odd("a message that ends after %d of %d bytes", len(message), n)
	case n < uint64(len(message)):
		return nil, odd("%d bytes behind its message", uint64(len(message))-n)
	}
	return message, nil
}

// ReadMessage returns the next message of a stream, which may have at most limit bytes. At the end of the
// stream the error is [io.EOF].
func ReadMessage(from io.Reader, limit uint32) ([]byte, error) {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return nil, err
	}
	if prefix[0] != 0 {
		return nil, fmt.Errorf("a compressed message (flag %d), which was not requested", prefix[0])
	}
	n := binary.BigEndian.Uint32(prefix[1:])
	if n > limit {
		return nil, fmt.Errorf("a message of %d bytes; %d is the limit", n, limit)
	}
	message := make([]byte, n)
	if read, err := io.ReadFull(from, message); err != nil {
		return nil, fmt.Errorf("a message that ends after %d of %d bytes: %w", read, n, io.ErrUnexpectedEOF)
	}
	return message, nil
}

// plain decodes a percent-encoded status message and returns it as a [Line].
func plain(message string) string {
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return Line(message)
}

// Line makes a peer's text safe to print: on one line, and not too long.
func Line(message string) string {
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
	return message
}

// timeout formats a call's deadline for gRPC: at most 8 digits and a unit.
func timeout(left time.Duration) string {
	if ms := left.Milliseconds(); ms < 1e8 {
		return strconv.FormatInt(max(ms, 1), 10) + "m"
	}
	return strconv.FormatInt(min(int64(left/time.Second), 99_999_999), 10) + "S"
}
