package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"outrider.dev/internal/wire"
)

// Credentials are for a server of a [Listener], whose handshakes are already done.
func Credentials() credentials.TransportCredentials { return done{} }

type done struct{}

func (done) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := c.(*Conn)
	if !ok {
		return nil, nil, errors.New("the connection is not one of a listener")
	}
	info := Info{conn: conn, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if _, ok := conn.Conn.(*tls.Conn); ok {
		info.SecurityLevel = credentials.PrivacyAndIntegrity
	}
	return c, info, nil
}

// Info is what a server knows of the peer of a call.
type Info struct {
	credentials.CommonAuthInfo
	conn *Conn
}

// AuthType is required by gRPC.
func (Info) AuthType() string { return "tls" }

// ConnectionState is the zero value without TLS.
func (i Info) ConnectionState() tls.ConnectionState {
	if secure, ok := i.conn.Conn.(*tls.Conn); ok {
		return secure.ConnectionState()
	}
	return tls.ConnectionState{}
}

// Tap refuses a call of a client that makes too many, before a server spends anything on
// it. Beyond the rate of all calls it closes the connection too: a client that opens and resets
// streams reads no status.
func Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	info, ok := p.AuthInfo.(Info)
	if !ok {
		return ctx, nil
	}
	from := info.conn.place
	switch may := from.allowance(); {
	case !may.calls.Allow():
		from.listener.refuse(from, CallsTooFast, "the client makes more calls than its rate")
		return ctx, status.Error(codes.ResourceExhausted, "too many calls from this client")
	case call.FullMethodName == wire.CertificatePath && !may.certificates.Allow():
		text := fmt.Sprintf("%d requests for certificates a second are answered", certificateRate)
		from.listener.note(CallsTooFast, from.from, text)
		return ctx, status.Error(codes.ResourceExhausted, "too many from this client: "+text)
	}
	return ctx, nil
}

// ClientOf names the client of a call as connections are counted: an identity, which is
// empty without TLS, at an address.
func ClientOf(ctx context.Context, identify func(tls.ConnectionState) (string, error)) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	identity := ""
	if info, ok := p.AuthInfo.(Info); ok {
		if state := info.ConnectionState(); len(state.PeerCertificates) > 0 {
			identity, _ = identify(state)
		}
	}
	return identity + " at " + block(addressOf(p.Addr)).String()
}

func (done) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (done) Info() credentials.ProtocolInfo          { return credentials.ProtocolInfo{SecurityProtocol: "tls"} }
func (done) Clone() credentials.TransportCredentials { return done{} }
func (done) OverrideServerName(string) error         { return nil }
