package ca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// AuthenticatePeer returns the identity of the peer of a gRPC call, from its certificate. It verifies
// the certificate again with the current time and roots, because the connection may be older. The error
// is a status Unauthenticated.
func (a *Authority) AuthenticatePeer(ctx context.Context) (Identity, error) {
	state := peerState(ctx)
	id, err := a.identify(state.PeerCertificates, state.VerifiedChains)
	if err != nil {
		return Identity{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return id, nil
}

// ClientName returns the name of a client whose certificate was verified: its identity and, for a host, the
// host's name.
func ClientName(state tls.ConnectionState) (string, error) {
	leaf := state.PeerCertificates[0]
	id, err := IdentityOf(leaf)
	if err != nil {
		return "", err
	}
	if host, ok := hostOf(leaf, id); ok {
		return id.String() + " on " + host.Name, nil
	}
	return id.String(), nil
}

// PeerHost returns the host in the certificate of a gRPC call's peer, even if that host is no longer in the
// mesh; false: the peer is not a host.
func PeerHost(ctx context.Context) (Host, bool) {
	chain := peerCertificates(ctx)
	if len(chain) == 0 {
		return Host{}, false
	}
	id, err := IdentityOf(chain[0])
	if err != nil {
		return Host{}, false
	}
	return hostOf(chain[0], id)
}

// peerCertificates returns the certificates of the client, the leaf first.
func peerCertificates(ctx context.Context) []*x509.Certificate {
	return peerState(ctx).PeerCertificates
}

// peerState returns the state of the connection; the zero value without TLS.
func peerState(ctx context.Context) tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		switch info := p.AuthInfo.(type) {
		case credentials.TLSInfo:
			return info.State
		case interface{ ConnectionState() tls.ConnectionState }: // the AuthInfo of package conns
			return info.ConnectionState()
		}
	}
	return tls.ConnectionState{}
}

// peerAddress returns the client's address without its port.
func peerAddress(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{} // the client of a Unix socket has no address
}
