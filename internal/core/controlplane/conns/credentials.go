package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"outrider.dev/internal/base/wire"
)

// Credentials returns the credentials for a gRPC server behind a [Listener], which has already made the
// handshakes.
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

// Info describes the peer of a call by its connection.
type Info struct {
	credentials.CommonAuthInfo
	conn *Conn
}

// AuthType is required by gRPC.
func (Info) AuthType() string { return "tls" }

// ConnectionState returns the state of the TLS connection; the zero value without TLS.
func (i Info) ConnectionState() tls.ConnectionState {
	if secure, ok := i.conn.Conn.(*tls.Conn); ok {
		return secure.ConnectionState()
	}
	return tls.ConnectionState{}
}

// Tap refuses a call if its client makes too many calls, before the server spends anything on it. If the
// client exceeds the rate for all calls, Tap also closes the connection, because a client that opens and
// resets streams does not read their status.
func Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	from := slotOf(ctx)
	if from == nil {
		return ctx, nil
	}
	if opens := from.listener.o.Opening; from.client.Load() != nil && (opens == nil || !opens(call.FullMethodName)) {
		from.settle()
	}
	switch may := from.limiters(); {
	case !may.calls.Allow():
		from.listener.refuse(from, CallsTooFast, "the client makes more calls than its rate")
		return ctx, status.Error(codes.ResourceExhausted, "too many calls from this client")
	case (call.FullMethodName == wire.CertificatePath || from.client.Load() == nil) && !may.certificates.Allow():
		text := fmt.Sprintf("%d requests for certificates, or with tokens, a second are answered", certificateRate)
		from.listener.note(CallsTooFast, from.from, text)
		return ctx, status.Error(codes.ResourceExhausted, "too many from this client: "+text)
	}
	return ctx, nil
}

// Settled ends the opening stage of a call's connection. Call it when the client has received what it needs
// to begin.
func Settled(ctx context.Context) {
	if s := slotOf(ctx); s != nil {
		s.settle()
	}
}

// slotOf returns the slot of a call's connection; nil if no listener of this package accepted it.
func slotOf(ctx context.Context) *slot {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(Info)
	if !ok {
		return nil
	}
	return info.conn.slot
}

// Identify assigns the identity that a call has proved to the call's connection, and closes the connection at
// the given time. If the connection has this identity already, nothing changes. It returns an error if the
// connection has a different identity, or if the client has too many connections.
func Identify(ctx context.Context, identity string, until time.Time) error {
	s := slotOf(ctx)
	if s == nil {
		return errors.New("the connection is not one of a listener")
	}
	err := s.listener.join(s, identity, until)
	if err != nil {
		s.listener.note(ClientFull, s.from, err.Error())
	}
	return err
}

// ClientOf returns the name under which the limits count a call's client: its identity, which is empty
// without TLS, and its address.
func ClientOf(ctx context.Context) string {
	s := slotOf(ctx)
	if s == nil {
		return ""
	}
	identity := ""
	if c := s.client.Load(); c != nil {
		identity = c.identity
	}
	return identity + " at " + s.from.String()
}

// From returns the address of a call's client, in the form in which the limits count it ([block]).
func From(ctx context.Context) netip.Addr {
	if s := slotOf(ctx); s != nil {
		return s.from
	}
	return netip.Addr{}
}

func (done) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (done) Info() credentials.ProtocolInfo          { return credentials.ProtocolInfo{SecurityProtocol: "tls"} }
func (done) Clone() credentials.TransportCredentials { return done{} }
func (done) OverrideServerName(string) error         { return nil }
