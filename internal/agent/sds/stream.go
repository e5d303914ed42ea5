package sds

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

	"outrider.dev/internal/wire/rpc"
)

// ServeHTTP is one stream.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	code, text := rpc.OK, ""
	var status *rpc.StatusError
	if err := s.stream(w, r); errors.As(err, &status) {
		code, text = status.Code, status.Message
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(code)))
	if text != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(text))
	}
}

func wrong(code rpc.Code, format string, args ...any) error {
	return &rpc.StatusError{Code: code, Message: rpc.Line(fmt.Sprintf(format, args...))}
}

// stream returns when the other side ends it or goes away. A [*rpc.StatusError] is for
// the other side to know.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path != Path {
		return wrong(rpc.Unimplemented, "only %s is served here", Path)
	}
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	default:
		return wrong(rpc.ResourceExhausted, "there are %d streams already", maxStreams)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil { // Envoy waits for the headers
		return err
	}
	requests, ended := receive(ctx, r.Body)
	asked := &subscription{}
	for {
		secrets, newest, later := s.news(asked.names, asked.seen)
		if later == nil {
			asked.seen, asked.told = newest, asked.told+1
			if _, err := w.Write(rpc.Frame(response(newest, asked.nonce(), secrets))); err != nil {
				return err
			}
			if err := flush.Flush(); err != nil {
				return err
			}
			continue
		}
		select {
		case q := <-requests:
			s.take(asked, q)
		case err := <-ended:
			return err
		case <-later:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive reads requests until the second channel says why there are no more: [io.EOF] at
// the stream's end, a [*rpc.StatusError] if it was none of this service.
func receive(ctx context.Context, body io.Reader) (<-chan request, <-chan error) {
	requests, ended := make(chan request), make(chan error, 1)
	go func() {
		for {
			q, err := next(body)
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

func next(body io.Reader) (request, error) {
	raw, err := rpc.Read(body, maxRequest)
	if errors.Is(err, io.EOF) {
		return request{}, io.EOF
	}
	if err != nil {
		return request{}, wrong(rpc.InvalidArgument, "%v", err)
	}
	q, err := parseRequest(raw)
	if err == nil && q.typeURL != "" && q.typeURL != typeURL {
		err = fmt.Errorf("resources of type %q; only %s are told here", q.typeURL, typeURL)
	}
	if err != nil {
		return request{}, wrong(rpc.InvalidArgument, "%v", err)
	}
	return q, nil
}

// A subscription is what one stream asks for, and what it was told.
type subscription struct {
	names    []string
	seen     uint64 // revision of what was told last
	told     int    // how often something was
	accepted bool   // something was
}

// nonce is that of the last answer.
func (s *subscription) nonce() string {
	if s.told == 0 {
		return ""
	}
	return strconv.Itoa(s.told)
}

// take takes a request over: the first one, an answer to ours, or other names.
func (s *Server) take(asked *subscription, q request) {
	asked.accepted = asked.accepted || q.nonce != "" && !q.refused
	if q.nonce != asked.nonce() {
		return // to an earlier answer; the one to the last follows
	}
	if q.refused {
		why := Rejection{Names: asked.names, Reason: q.reason, Kept: asked.accepted}
		s.o.Log.Error("Envoy refuses a secret", "names", why.Names, "reason", why.Reason, "kept", why.Kept)
		if s.o.Rejected != nil {
			s.o.Rejected(why)
		}
	}
	if !slices.Equal(q.names, asked.names) {
		asked.names, asked.seen = q.names, 0 // what is new among them may be older than what was told
	}
}
