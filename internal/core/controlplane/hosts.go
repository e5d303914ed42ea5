package controlplane

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/controlplane/ca"
)

// hosts are the machines outside of Kubernetes that the mesh has.
type hosts struct{ mesh source }

// HostByToken finds the host that a one-time token is for.
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

// Has returns whether a host is still declared, for the same service account.
func (h hosts) Has(host ca.Host) bool {
	current, _ := h.mesh.Current()
	w := current.Host(host.Namespace, host.Name)
	return w != nil && w.ServiceAccount == host.ServiceAccount
}

// Any returns whether a host is declared.
func (h hosts) Any() bool {
	current, _ := h.mesh.Current()
	for _, w := range current.Workloads() {
		if w.Host {
			return true
		}
	}
	return false
}

// gone waits until a host is not declared any more, or ctx ends.
func (h hosts) gone(ctx context.Context, host ca.Host) bool {
	for {
		_, changed := h.mesh.Current() // before Has: a change after it closes changed
		if !h.Has(host) {
			return true
		}
		if !wait(ctx, changed) {
			return false
		}
	}
}

// whileDeclared ends the streams of a host that is removed. [ca.Authority.AuthenticatePeer]
// refuses new ones.
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

// endedBy serves a stream in a context, which watch may end with the status of the stream.
func endedBy(s grpc.ServerStream, ctx context.Context, watch func(context.Context, context.CancelCauseFunc), serve func(grpc.ServerStream) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go watch(ctx, end)
	err := serve(bounded{s, ctx})
	if cause := context.Cause(ctx); cause != ctx.Err() { // the client's end has no status
		return cause
	}
	return err
}

// bounded is a stream that ends with another context.
type bounded struct {
	grpc.ServerStream
	ctx context.Context
}

func (b bounded) Context() context.Context { return b.ctx }

// mayRenew is why a workload may not renew its certificate by that alone. In a cluster a token
// proves, each time, that the pod and its service account still are. Without one tokens are
// made by hand, and the declared pods say who is in the mesh.
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
