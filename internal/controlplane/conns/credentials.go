package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Credentials are for a server of a [Listener] with TLS, whose handshakes are already done.
func Credentials() credentials.TransportCredentials { return done{} }

type done struct{}

func (done) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var secure *tls.Conn
	if conn, ok := c.(*Conn); ok {
		secure, _ = conn.Conn.(*tls.Conn)
	}
	if secure == nil {
		return nil, nil, errors.New("the connection is not one of a listener with TLS")
	}
	return c, credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientOf names the client of a call as connections are counted: an identity, which is
// empty without TLS, at an address.
func ClientOf(ctx context.Context, identify func(tls.ConnectionState) (string, error)) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	identity := ""
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		identity, _ = identify(info.State)
	}
	return identity + " at " + block(addressOf(p.Addr)).String()
}

func (done) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (done) Info() credentials.ProtocolInfo          { return credentials.ProtocolInfo{SecurityProtocol: "tls"} }
func (done) Clone() credentials.TransportCredentials { return done{} }
func (done) OverrideServerName(string) error         { return nil }
