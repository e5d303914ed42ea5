// Package grpcresilience applies policies of package resilience to gRPC clients, through interceptors.
//
//	calls, err := grpcresilience.New(resilience.Default("orders"))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, append(calls.DialOptions(), ...)...)
//
// These RPCs are repeated:
//
//   - RPCs of methods whose idempotency_level in the .proto file is NO_SIDE_EFFECTS or
//     IDEMPOTENT, RPCs with a context of [resilience.WithIdempotent], and all RPCs if Options.Idempotent is set;
//   - any other RPC only if it was not sent, because there was no connection.
//
// A streaming RPC is repeated only until it is established: after that, the interceptor cannot send again what
// the application has sent. The application must handle later failures, and the breaker does not count them.
// Timeouts of the policy end when the stream is established.
//
// A server's push-back (trailer grpc-retry-pushback-ms, gRPC's proposal A6) acts like Retry-After in HTTP. Do not
// also use the retries of gRPC's service config: the tries of both would multiply.
package grpcresilience

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"outrider.dev/resilience"
)

// Interceptors apply one policy to the RPCs of any number of connections. Each target has its own breaker,
// bulkhead and limiter; connections to the same target share them.
type Interceptors struct {
	policy     *resilience.Policy
	idempotent bool // all RPCs may be repeated
}

// New returns interceptors, or an error that names every invalid option. Hedges are unsupported, because two
// tries would write to the same reply. Options.Single is always set. Options.Classify receives status errors; its
// default is [Classify].
func New(o resilience.Options) (*Interceptors, error) {
	var unsupported error
	if o.Hedge != nil {
		unsupported = errors.New("grpcresilience: Options.Hedge is unsupported: must be nil")
	}
	classify := o.Classify
	if classify == nil {
		classify = Classify
	}
	o.Single = true
	o.Classify = func(err error) resilience.Class {
		if t, ok := errors.AsType[*tryError](err); ok {
			if t.unsent {
				return resilience.Absent
			}
			err = t.error
		}
		return classify(err)
	}
	p, err := resilience.New(o)
	if err := errors.Join(unsupported, err); err != nil {
		return nil, err
	}
	return &Interceptors{p, o.Idempotent}, nil
}

// DialOptions returns the interceptors as options for [grpc.NewClient].
func (i *Interceptors) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i.Unary), grpc.WithChainStreamInterceptor(i.Stream)}
}

// Classify classifies the status of an RPC:
//
//	UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED   Lost
//	RESOURCE_EXHAUSTED                          Busy
//	INTERNAL, UNKNOWN, DATA_LOSS                Failed
//	all others                                  Answered
//
// If there was no connection for the RPC, UNAVAILABLE is Absent, whatever Options.Classify returns.
func Classify(err error) resilience.Class {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return resilience.Lost
	case codes.ResourceExhausted:
		return resilience.Busy
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return resilience.Failed
	default:
		return resilience.Answered
	}
}

// Unary is a [grpc.UnaryClientInterceptor].
func (i *Interceptors) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	_, err := resilience.Do(i.context(ctx, method), i.policy.For(cc.Target()), func(ctx context.Context) (struct{}, error) {
		var t attempt
		return struct{}{}, t.result(invoke(ctx, method, req, reply, cc, t.options(opts)...))
	})
	return statusError(err)
}

// Stream is a [grpc.StreamClientInterceptor].
func (i *Interceptors) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	var opened *stream
	_, err := resilience.Do(i.context(ctx, method), i.policy.For(cc.Target()), func(try context.Context) (struct{}, error) {
		// The stream outlives the try, so the try's context may end the stream only until it is established.
		streamCtx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(try, cancel)
		var t attempt
		s, err := open(streamCtx, desc, cc, method, t.options(opts)...)
		if !stop() && err == nil {
			err = context.Cause(try)
		}
		if err != nil {
			cancel()
			return struct{}{}, t.result(err)
		}
		opened = &stream{s, cancel, desc.ServerStreams}
		return struct{}{}, nil
	})
	if err != nil {
		if opened != nil { // the deadline passed when the stream had just been opened
			opened.cancel()
		}
		return nil, statusError(err)
	}
	return opened, nil
}

// context returns ctx, with the mark of [resilience.WithIdempotent] if the method is declared as idempotent.
func (i *Interceptors) context(ctx context.Context, method string) context.Context {
	if !i.idempotent && declaredIdempotent(method) {
		return resilience.WithIdempotent(ctx)
	}
	return ctx
}

// declaredIdempotent looks the method up in the compiled-in .proto files.
func declaredIdempotent(method string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	if !protoreflect.FullName(name).IsValid() {
		return false
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	o, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// An attempt records what gRPC reports about one try in addition to its status.
type attempt struct {
	peer    peer.Peer
	trailer metadata.MD
}

func (t *attempt) options(opts []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.Peer(&t.peer), grpc.Trailer(&t.trailer))
}

// result wraps a status error with two facts: whether the RPC was not sent, and the time before a retry. Without
// a peer there was no connection, so nothing was sent. The text of the error does not prove that, because the
// server may have passed on the error of another server.
func (t *attempt) result(err error) error {
	if err == nil {
		return nil
	}
	e := &tryError{error: err, unsent: t.peer.Addr == nil && status.Code(err) == codes.Unavailable}
	if v := t.trailer.Get("grpc-retry-pushback-ms"); len(v) > 0 {
		e.after = pushback(v[0])
	}
	return e
}

// pushback parses the trailer grpc-retry-pushback-ms. A negative or invalid value forbids a retry:
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
func pushback(v string) time.Duration {
	ms, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil || ms < 0:
		return -1
	case ms > int64(math.MaxInt64/time.Millisecond):
		return math.MaxInt64
	default:
		return time.Duration(ms) * time.Millisecond
	}
}

// A tryError is the status error of a try. Only the policy gets it; the application gets the error that it wraps.
type tryError struct {
	error
	unsent bool
	after  time.Duration
}

func (e *tryError) Unwrap() error             { return e.error }
func (e *tryError) RetryAfter() time.Duration { return e.after }

// A policyError is an error of the policy with a gRPC status.
type policyError struct {
	error
	code codes.Code
}

func (e *policyError) Unwrap() error              { return e.error }
func (e *policyError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }

// statusError returns the error of an RPC as an application expects it: the error of the last try
// unchanged, and other errors with the status that gRPC itself would use.
func statusError(err error) error {
	t, ok := err.(*tryError)
	switch {
	case err == nil:
		return nil
	case ok:
		return t.error
	case errors.Is(err, resilience.ErrOpen):
		return &policyError{err, codes.Unavailable}
	case errors.Is(err, resilience.ErrFull), errors.Is(err, resilience.ErrLimited):
		return &policyError{err, codes.ResourceExhausted}
	case errors.Is(err, context.DeadlineExceeded):
		return &policyError{err, codes.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &policyError{err, codes.Canceled}
	default:
		return &policyError{fmt.Errorf("grpcresilience: %w", err), codes.Unknown}
	}
}

// A stream cancels its context when the RPC ends.
type stream struct {
	grpc.ClientStream
	cancel  context.CancelFunc
	several bool // the server may send several messages
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || !s.several {
		s.cancel()
	}
	return err
}
