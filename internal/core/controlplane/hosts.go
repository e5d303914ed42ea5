package controlplane

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
)

// hosts implements [ca.Hosts] by the hosts that the mesh declares.
type hosts struct{ mesh source }

// HostByToken finds the host for which a one-time token was issued.
func (h hosts) HostByToken(sum [32]byte) (ca.Host, bool) {
	current, _ := h.mesh.Current()
	want := fmt.Sprintf("%x", sum)
	for _, w := range current.Workloads() {
		if w.Host && w.TokenSHA256 == want {
			return ca.Host{Namespace: w.Namespace, Name: w.Name, ServiceAccount: w.ServiceAccount}, true
		}
	}
	return ca.Host{}, false
}

// Has reports whether a host is still declared with the same service account.
func (h hosts) Has(host ca.Host) bool {
	current, _ := h.mesh.Current()
	w := current.Host(host.Namespace, host.Name)
	return w != nil && w.ServiceAccount == host.ServiceAccount
}

// Any reports whether the mesh declares any host.
func (h hosts) Any() bool {
	current, _ := h.mesh.Current()
	for _, w := range current.Workloads() {
		if w.Host {
			return true
		}
	}
	return false
}

// gone waits until a host is no longer declared. It returns false if ctx ends first.
func (h hosts) gone(ctx context.Context, host ca.Host) bool {
	for {
		_, changed := h.mesh.Current() // before Has, so that a later change closes changed
		if !h.Has(host) {
			return true
		}
		if !latest.Wait(ctx, changed) {
			return false
		}
	}
}

// whileDeclared ends the streams of a host once it is removed from the mesh.
// [ca.Authority.AuthenticatePeer] refuses new streams.
func (p *plane) whileDeclared(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	host, ok := ca.PeerHost(s.Context())
	if !ok {
		return serve(service, s)
	}
	return endedBy(s, s.Context(), func(ctx context.Context, end context.CancelCauseFunc) {
		if (hosts{p.mesh}).gone(ctx, host) {
			end(status.Error(codes.Unauthenticated, host.Gone().Error()))
		}
	}, func(s grpc.ServerStream) error { return serve(service, s) })
}

// endedBy serves a stream with a context that the function watch may cancel. The cause of that cancellation
// becomes the status of the stream.
func endedBy(s grpc.ServerStream, ctx context.Context, watch func(context.Context, context.CancelCauseFunc), serve func(grpc.ServerStream) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go watch(ctx, end)
	err := serve(bounded{s, ctx})
	if cause := context.Cause(ctx); cause != ctx.Err() { // they are equal if the client has cancelled the stream
		return cause
	}
	return err
}

// bounded is a stream with a different context.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bounded) Context() context.Context { return b.ctx }

// mayRenew returns an error if a workload may not renew its certificate without a token. In a cluster each
// request needs a token, which proves that the pod and its service account still exist. Without a cluster, an
// operator issues tokens by hand, so the service accounts of the declared pods may renew.
func (p *plane) mayRenew(id ca.Identity) error {
	if p.cluster != nil {
		return ca.ErrTokenNeeded
	}
	for _, w := range p.current().Workloads() {
		if !w.Host && w.Namespace == id.Namespace && w.ServiceAccount == id.ServiceAccount {
			return nil
		}
	}
	return &ca.Refusal{Reason: fmt.Sprintf("no pod of the mesh has the service account %s/%s: its certificate is not renewed without a new token", id.Namespace, id.ServiceAccount)}
}
