// Package unary adds a gRPC method to a server without generated types: a message is
// whatever its own functions make of its bytes.
package unary

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A Method is one unary method of a service.
type Method[Request any, Response interface{ Marshal() []byte }] struct {
	Service, Name string
	File          string // that describes it, for reflection; may be empty

	Parse  func([]byte) (Request, error) // an error is the caller's fault
	Answer func(context.Context, Request) (Response, error)
}

// Register adds the method to a server, as a service of its own.
func (m Method[Request, Response]) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: m.Service,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: m.Name, Handler: m.handle}},
		Metadata:    m.File,
	}, m)
}

// handle carries the messages through gRPC's own codec inside an Empty: all fields are
// unknown to it, and unknown fields are kept as they are. So neither generated types nor
// another codec are needed on a server that also speaks xDS.
func (m Method[Request, Response]) handle(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := &emptypb.Empty{}
	if err := dec(in); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, in any) (any, error) {
		request, err := m.Parse(in.(*emptypb.Empty).ProtoReflect().GetUnknown())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		response, err := m.Answer(ctx, request)
		if err != nil {
			return nil, err
		}
		out := &emptypb.Empty{}
		out.ProtoReflect().SetUnknown(response.Marshal())
		return out, nil
	}
	if interceptor == nil {
		return call(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + m.Service + "/" + m.Name}, call)
}
