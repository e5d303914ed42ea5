package ca

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A Method is a unary gRPC method without generated types: two functions encode and decode its
// messages.
type Method[Request any, Response interface{ Marshal() []byte }] struct {
	Service, Name string
	File          string // the .proto file, for reflection; may be empty

	Parse  func([]byte) (Request, error) // its error becomes InvalidArgument
	Handle func(context.Context, Request) (Response, error)
}

// Register adds the method to a server, as a service that has only this method.
func (m Method[Request, Response]) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: m.Service,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: m.Name, Handler: m.serve}},
		Metadata:    m.File,
	}, m)
}

// serve lets gRPC's own codec decode each message as an Empty, which keeps all fields as unknown ones. So a
// server that also speaks xDS needs no second codec.
func (m Method[Request, Response]) serve(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := &emptypb.Empty{}
	if err := dec(in); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, in any) (any, error) {
		request, err := m.Parse(in.(*emptypb.Empty).ProtoReflect().GetUnknown())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		response, err := m.Handle(ctx, request)
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
