package grpcresilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"outrider.dev/resilience"
	"outrider.dev/resilience/grpcresilience"
)

// A server answers each RPC with a function, which gets the number of the RPC. It accepts any method.
type server struct {
	addr  string
	calls atomic.Int32
}

func newServer(t *testing.T, answer func(n int, s grpc.ServerStream) error) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String()}
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return answer(int(s.calls.Add(1)), stream)
	}))
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return s
}

// then returns a function that fails RPCs with these codes, one after the other, and then sends empty
// messages.
func then(fails ...codes.Code) func(int, grpc.ServerStream) error {
	return func(n int, s grpc.ServerStream) error {
		if n <= len(fails) {
			return status.Error(fails[n-1], "no")
		}
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return s.SendMsg(&emptypb.Empty{})
	}
}

type record struct {
	mu     sync.Mutex
	events []resilience.Event
}

func (r *record) observe(_ context.Context, e resilience.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *record) last(d resilience.Decision) (out resilience.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Decision == d {
			out = e
		}
	}
	return out
}

func client(t *testing.T, addr string, o resilience.Options) (*grpc.ClientConn, *record) {
	t.Helper()
	r := &record{}
	budget, err := resilience.NewBudget(resilience.BudgetOptions{Ratio: 1, PerSecond: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Observe, o.Budget = "test", r.observe, budget
	i, err := grpcresilience.New(o)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(i.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, r
}

var retry = &resilience.Retry{Tries: 3, MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxRetryAfter: time.Second}

// Two methods with different idempotency levels in their .proto file.
const (
	safe   = "/resilience.test.Shop/Get"
	unsafe = "/resilience.test.Shop/Buy"
)

func init() {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("resilience/test/shop.proto"), Package: proto.String("resilience.test"),
		Dependency: []string{"google/protobuf/empty.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Shop"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Get"), InputType: proto.String(".google.protobuf.Empty"), OutputType: proto.String(".google.protobuf.Empty"),
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()}},
			{Name: proto.String("Buy"), InputType: proto.String(".google.protobuf.Empty"), OutputType: proto.String(".google.protobuf.Empty")},
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}

func TestUnary(t *testing.T) {
	forged := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: connection refused"`)
	tests := map[string]struct {
		method string
		answer func(int, grpc.ServerStream) error
		mark   bool
		calls  int32
		code   codes.Code
	}{
		"UNAVAILABLE of a method without side effects is repeated": {safe, then(codes.Unavailable, codes.Unavailable), false, 3, codes.OK},
		"UNAVAILABLE of another method is not":                     {unsafe, then(codes.Unavailable), false, 1, codes.Unavailable},
		"unless its context says that it may be":                   {unsafe, then(codes.Unavailable), true, 2, codes.OK},
		"RESOURCE_EXHAUSTED is":                                    {safe, then(codes.ResourceExhausted), false, 2, codes.OK},
		"INVALID_ARGUMENT is not":                                  {safe, then(codes.InvalidArgument), false, 1, codes.InvalidArgument},
		"INTERNAL is not":                                          {safe, then(codes.Internal), false, 1, codes.Internal},
		"the last error is given":                                  {safe, then(codes.Unavailable, codes.Unavailable, codes.Unavailable), false, 3, codes.Unavailable},
		"a server that was refused by its own server got this RPC": {unsafe, func(int, grpc.ServerStream) error { return forged }, false, 1, codes.Unavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.answer)
			conn, _ := client(t, s.addr, resilience.Options{Retry: retry})
			ctx := t.Context()
			if tt.mark {
				ctx = resilience.WithIdempotent(ctx)
			}
			err := conn.Invoke(ctx, tt.method, &emptypb.Empty{}, &emptypb.Empty{})
			if status.Code(err) != tt.code || s.calls.Load() != tt.calls {
				t.Errorf("%v after %d RPCs, want %v after %d", err, s.calls.Load(), tt.code, tt.calls)
			}
		})
	}
}

func TestAnRPCThatWasNotSentIsRepeated(t *testing.T) {
	server := newServer(t, nil)
	other, err := net.Dial("tcp", server.addr) // the local port of this connection has no listener, and the kernel gives it to no other process
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, events := client(t, other.LocalAddr().String(), resilience.Options{Retry: retry})
	err = conn.Invoke(t.Context(), unsafe, &emptypb.Empty{}, &emptypb.Empty{})
	if e := events.last(resilience.Done); status.Code(err) != codes.Unavailable || e.Try != 3 || e.Class != resilience.Absent {
		t.Errorf("%v, %+v", err, e)
	}
	_, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, unsafe)
	if e := events.last(resilience.Done); status.Code(err) != codes.Unavailable || e.Try != 3 || e.Class != resilience.Absent {
		t.Errorf("stream: %v, %+v", err, e)
	}
}

func TestPushback(t *testing.T) {
	for value, calls := range map[string]int32{"1": 2, "-1": 1, "5000": 1, "soon": 1} {
		s := newServer(t, func(n int, s grpc.ServerStream) error {
			if n == 1 {
				s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", value))
			}
			return then(codes.Unavailable)(n, s)
		})
		conn, _ := client(t, s.addr, resilience.Options{Retry: retry})
		conn.Invoke(t.Context(), safe, &emptypb.Empty{}, &emptypb.Empty{})
		if s.calls.Load() != calls {
			t.Errorf("push-back %q: %d RPCs, want %d", value, s.calls.Load(), calls)
		}
	}
}

func TestErrorsOfThePolicyHaveAStatus(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	s := newServer(t, func(_ int, s grpc.ServerStream) error {
		select {
		case <-hold:
		case <-s.Context().Done():
		}
		return status.Error(codes.Internal, "no")
	})
	invoke := func(ctx context.Context, o resilience.Options, n int) (err error) {
		conn, _ := client(t, s.addr, o)
		for range n {
			err = conn.Invoke(ctx, safe, &emptypb.Empty{}, &emptypb.Empty{})
		}
		return err
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	breaker := &resilience.Breaker{FailureRatio: 1, MinTries: 1, Window: time.Second, OpenFor: time.Hour}
	for _, tt := range []struct {
		err  error
		is   error
		code codes.Code
	}{
		{invoke(t.Context(), resilience.Options{Timeout: 50 * time.Millisecond}, 1), resilience.ErrTimeout, codes.DeadlineExceeded},
		{invoke(t.Context(), resilience.Options{TryTimeout: 50 * time.Millisecond}, 1), resilience.ErrTimeout, codes.DeadlineExceeded},
		{invoke(t.Context(), resilience.Options{TryTimeout: 50 * time.Millisecond, Breaker: breaker}, 2), resilience.ErrOpen, codes.Unavailable},
		{invoke(gone, resilience.Options{}, 1), context.Canceled, codes.Canceled},
	} {
		if !errors.Is(tt.err, tt.is) || status.Code(tt.err) != tt.code {
			t.Errorf("%v: status %v, want %v and %v", tt.err, status.Code(tt.err), tt.is, tt.code)
		}
	}
}

func TestAStreamOutlivesTheTimeoutsOfThePolicy(t *testing.T) {
	next := make(chan struct{})
	s := newServer(t, func(_ int, s grpc.ServerStream) error {
		for range 2 {
			<-next
			if err := s.SendMsg(&emptypb.Empty{}); err != nil {
				return err
			}
		}
		return nil
	})
	conn, events := client(t, s.addr, resilience.Options{Timeout: 30 * time.Second, TryTimeout: 30 * time.Second, Retry: retry})
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, safe)
	if err != nil {
		t.Fatal(err)
	}
	if e := events.last(resilience.Done); e.Try != 1 || e.Err != nil {
		t.Errorf("%+v", e)
	}
	stream.CloseSend()
	for range 2 { // the stream must work although the contexts of the call have ended
		next <- struct{}{}
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.RecvMsg(&emptypb.Empty{}); err != io.EOF {
		t.Errorf("error %v", err)
	}
	if stream.Context().Err() == nil {
		t.Error("the context of a stream that ended is not freed")
	}
}

func TestWrongOptions(t *testing.T) {
	_, err := grpcresilience.New(resilience.Options{Hedge: &resilience.Hedge{Delay: time.Second, Max: 1}})
	for _, want := range []string{"Options.Hedge is unsupported", "Options.Name is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// The .proto file of the service is compiled into the client, so its idempotent methods are known.
func Example() {
	calls, err := grpcresilience.New(resilience.ForStart("orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := grpc.NewClient("dns:///orders.shop:443", append(calls.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(resilience.WithIdempotent(ctx), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(status.Code(err))
	// Output: DeadlineExceeded
}
