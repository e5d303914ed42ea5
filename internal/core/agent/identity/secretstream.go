package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/wire"
)

// ServeHTTP serves one stream.
func (s *SecretServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	code, text := wire.OK, ""
	var status *wire.StatusError
	if err := s.stream(w, r); errors.As(err, &status) {
		code, text = status.Code, status.Message
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(code)))
	if text != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(text))
	}
}

func statusError(code wire.Code, format string, args ...any) error {
	return &wire.StatusError{Code: code, Message: wire.Line(fmt.Sprintf(format, args...))}
}

// stream returns when the client ends the stream or disconnects. A [*wire.StatusError] is sent to
// the client.
func (s *SecretServer) stream(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path != secretsPath {
		return statusError(wire.Unimplemented, "only %s is served here", secretsPath)
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return statusError(wire.ResourceExhausted, "there are %d streams already", maxStreams)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil { // Envoy waits for the response headers
		return err
	}
	requests, ended := receive(ctx, r.Body)
	sub := &subscription{}
	for {
		secrets, version, changed := s.resources(sub.names, sub.version)
		if changed == nil {
			sub.version, sub.responses = version, sub.responses+1
			if _, err := w.Write(wire.Frame(discoveryResponse(version, sub.nonce(), secrets))); err != nil {
				return err
			}
			if err := flush.Flush(); err != nil {
				return err
			}
			continue
		}
		select {
		case q := <-requests:
			s.handle(sub, q)
		case err := <-ended:
			return err
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive reads requests until the second channel has an error: [io.EOF] at the stream's end, a
// [*wire.StatusError] after a malformed request.
func receive(ctx context.Context, body io.Reader) (<-chan discoveryRequest, <-chan error) {
	requests, ended := make(chan discoveryRequest), make(chan error, 1)
	go func() {
		for {
			q, err := nextRequest(body)
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- q:
			case <-ctx.Done():
				return
			}
		}
	}()
	return requests, ended
}

func nextRequest(body io.Reader) (discoveryRequest, error) {
	raw, err := wire.ReadMessage(body, maxRequest)
	if errors.Is(err, io.EOF) {
		return discoveryRequest{}, io.EOF
	}
	if err != nil {
		return discoveryRequest{}, statusError(wire.InvalidArgument, "%v", err)
	}
	q, err := parseDiscoveryRequest(raw)
	if err == nil && q.typeURL != "" && q.typeURL != secretType {
		err = fmt.Errorf("resources of type %q; only %s are served here", q.typeURL, secretType)
	}
	if err != nil {
		return discoveryRequest{}, statusError(wire.InvalidArgument, "%v", err)
	}
	return q, nil
}

// A subscription is the state of one stream.
type subscription struct {
	names     []string
	version   uint64 // of the last response
	responses int
	accepted  bool // the client has sent an ACK
}

// nonce returns the nonce of the last response.
func (s *subscription) nonce() string {
	if s.responses == 0 {
		return ""
	}
	return strconv.Itoa(s.responses)
}

// handle handles a request: the first one, an ACK, a NACK, or a changed subscription.
func (s *SecretServer) handle(sub *subscription, q discoveryRequest) {
	sub.accepted = sub.accepted || q.nonce != "" && !q.nack
	if q.nonce != sub.nonce() {
		return // q is about an earlier response; the request about the last response follows
	}
	if q.nack {
		why := Rejection{Names: sub.names, Reason: q.reason, Kept: sub.accepted}
		s.o.Log.Error("Envoy rejects a secret", "names", why.Names, "reason", why.Reason, "kept", why.Kept)
		if s.o.Rejected != nil {
			s.o.Rejected(why)
		}
	}
	if !slices.Equal(q.names, sub.names) {
		sub.names, sub.version = q.names, 0 // a newly subscribed secret may have an old version
	}
}
