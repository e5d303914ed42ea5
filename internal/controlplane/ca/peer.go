package ca

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/controlplane/spiffe"
)

// AuthenticatePeer says who is at the other end of a gRPC call's connection, by its
// certificate. It looks at the clock and the roots of this moment: a connection may be
// older than both. The error is a status Unauthenticated.
func (a *Authority) AuthenticatePeer(ctx context.Context) (Identity, error) {
	id, err := a.Identify(peerCertificates(ctx))
	if err != nil {
		return Identity{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return id, nil
}

// PeerHost returns the host at the other end of a gRPC call's connection, by its certificate,
// whether or not it is still there; false: it is none.
func PeerHost(ctx context.Context) (Host, bool) {
	chain := peerCertificates(ctx)
	if len(chain) == 0 {
		return Host{}, false
	}
	id, err := spiffe.Of(chain[0])
	if err != nil {
		return Host{}, false
	}
	return hostOf(chain[0], id)
}

// peerCertificates are what the client showed, the leaf first.
func peerCertificates(ctx context.Context) []*x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return info.State.PeerCertificates
}

// peerAddress is where the client is, without its port.
func peerAddress(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{} // a socket of this machine
}
