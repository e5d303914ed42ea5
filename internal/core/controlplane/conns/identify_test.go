package conns

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"outrider.dev/test/process"
)

// call opens a connection without a certificate. It returns the context of a call on that connection, and
// both ends of the connection.
func call(t *testing.T, l *Listener) (ctx context.Context, client, server net.Conn) {
	t.Helper()
	client = dial(t, l, 0)
	server = accept(t, l.Anonymous())
	_, info, err := Credentials().ServerHandshake(server)
	if err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), &peer.Peer{Addr: server.RemoteAddr(), AuthInfo: info}), client, server
}

func TestIdentityFromAToken(t *testing.T) {
	l := start(t, Options{Proxies: 1, anonymous: time.Hour})
	ctx, client, server := call(t, l)
	if name := ClientOf(ctx); !strings.HasPrefix(name, " at ") {
		t.Errorf("%q; want no identity before it is proved", name)
	}
	before := server.(*Conn).expiry
	if err := Identify(ctx, "2", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if before.Stop() {
		t.Error("the time without an identity still ends the connection")
	}
	if c := l.Counters(); c.Anonymous != 0 || c.Identified != 1 {
		t.Errorf("%+v; want one connection, with an identity", c)
	}
	dial(t, l, 2) // the same identity, by a certificate, is the same client
	byCertificate := accept(t, l.Identified()).(*Conn)
	if a, b := byCertificate.client.Load(), server.(*Conn).client.Load(); a != b {
		t.Errorf("%+v and %+v; want one client", a, b)
	}
	// This is more than the limit without an identity.
	go client.Write(make([]byte, 2*maxAnonymousBytes))
	if n, err := io.CopyN(io.Discard, server, 2*maxAnonymousBytes); err != nil {
		t.Errorf("after %d bytes: %v; want them all", n, err)
	}
}

func TestConnectionEndsWithItsToken(t *testing.T) {
	l := start(t, Options{anonymous: time.Hour})
	ctx, client, server := call(t, l)
	if err := Identify(ctx, "2", time.Now().Add(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	client.SetReadDeadline(time.Now().Add(process.Patience))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after its expiry: %v; want the end of the connection", err)
	}
	<-server.(*Conn).open.Done()
	if c := l.Counters(); c.Identified != 0 {
		t.Errorf("%+v; want that the connection is not counted any more", c)
	}
}

func TestSecondIdentityIsRefused(t *testing.T) {
	l := start(t, Options{})
	ctx, _, _ := call(t, l)
	for _, identity := range []string{"2", "2"} {
		if err := Identify(ctx, identity, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Identify(ctx, "3", time.Time{}); err == nil || !strings.Contains(err.Error(), `the connection is of "2"; for "3" open another one`) {
		t.Errorf("%v; want that the connection keeps its identity", err)
	}
	if c := l.Counters(); c.Identified != 1 || c.Refused[ClientFull] != 1 {
		t.Errorf("%+v; want one connection and one refusal", c)
	}
	if err := Identify(t.Context(), "2", time.Time{}); err == nil {
		t.Error("a call on no connection gets an identity")
	}
}

// A client that proves its identity by tokens may open as many connections as with certificates, and no more.
func TestConnectionsByTokenCountForTheirClient(t *testing.T) {
	l := start(t, Options{Proxies: 1})
	for i := range connectionsPerProxy {
		if ctx, _, _ := call(t, l); Identify(ctx, "2", time.Time{}) != nil {
			t.Fatalf("connection %d is refused", i+1)
		}
	}
	ctx, _, _ := call(t, l)
	if err := Identify(ctx, "2", time.Time{}); err == nil || !strings.Contains(err.Error(), `4 connections of "2" from one address`) {
		t.Errorf("%v; want the limit and the client", err)
	}
}

func TestBytesWithoutAnIdentityEndAConnection(t *testing.T) {
	l := start(t, Options{anonymous: time.Hour})
	_, client, server := call(t, l)
	go func() {
		client.Write(make([]byte, 2*maxAnonymousBytes))
		client.Close()
	}()
	n, err := io.Copy(io.Discard, server)
	if !errors.Is(err, net.ErrClosed) || n > maxAnonymousBytes {
		t.Errorf("%d bytes, %v; want the end of the connection after %d", n, err, maxAnonymousBytes)
	}
	if c := l.Counters(); c.Anonymous != 0 || c.Refused[TooMuch] != 1 {
		t.Errorf("%+v; want no connection and one refusal", c)
	}
}

// By default the API server presents no certificate to the webhook. Its connection is not closed for that.
func TestClientsThatNeedNoIdentityKeepTheirConnections(t *testing.T) {
	l := start(t, Options{Unidentified: true, anonymous: time.Nanosecond})
	_, client, server := call(t, l)
	go client.Write(make([]byte, 2*maxAnonymousBytes))
	if n, err := io.CopyN(io.Discard, server, 2*maxAnonymousBytes); err != nil {
		t.Errorf("after %d bytes: %v; want them all", n, err)
	}
	if c := l.Counters(); c != (Counters{Anonymous: 1}) {
		t.Errorf("%+v; want one connection and no refusal", c)
	}
}

func TestTimeWithoutAnIdentityEndsAConnection(t *testing.T) {
	l := start(t, Options{anonymous: time.Millisecond})
	_, client, server := call(t, l)
	closed(t, client)
	<-server.(*Conn).open.Done()
	if c := l.Counters(); c != (Counters{}) {
		t.Errorf("%+v; want none", c)
	}
}
