package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/test/port"
)

// request makes one call of a client, with a time limit.
func request(t testing.TB, c Client, within time.Duration) ([]*x509.Certificate, *Fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	chain, err := c.CreateCertificate(ctx, Call{CSR: must(newCSR(must(newKey(P256)), shop)), Life: time.Hour})
	var f *Fault
	if err != nil && !errors.As(err, &f) {
		t.Fatalf("%v is no *Fault", err)
	}
	return chain, f
}

func TestTheControlPlaneMustBeTheRightOne(t *testing.T) {
	p := newPlane(t)
	good := p.options(t).Client
	other := filepath.Join(t.TempDir(), "other.pem")
	put(t, other, newAuthority(t).RootsPEM())
	tests := map[string]struct {
		change func(*Client)
		kind   Kind // of the expected fault; empty: it is the right control plane
		want   string
	}{
		"by its SPIFFE identity":    {change: func(*Client) {}},
		"by its DNS name":           {change: func(c *Client) { c.Identity = []string{planeName} }},
		"by one of several":         {change: func(c *Client) { c.Identity = []string{"spiffe://x/ns/a/sa/b", planeName} }},
		"another name":              {func(c *Client) { c.Identity = []string{"other.svc"} }, Untrusted, "is " + planeName + ", " + contract.ControlPlaneName + ", " + planeID + ", and not the control plane other.svc"},
		"another identity":          {func(c *Client) { c.Identity = []string{planeID + "2"} }, Untrusted, "and not the control plane " + planeID + "2"},
		"an address without a name": {func(c *Client) { c.Identity = nil }, Untrusted, "and not the control plane 127.0.0.1"},
		"another root":              {func(c *Client) { c.RootFile = other }, Untrusted, "unknown root"},
		"no root file":              {func(c *Client) { c.RootFile += "x" }, NoRoots, "no such file"},
		"a root file without roots": {func(c *Client) { c.RootFile = c.TokenFile }, NoRoots, "no certificate in it"},
		"an invalid address":        {func(c *Client) { c.Address = "::" }, Broken, `address "::"`},
		"connection refused":        {func(c *Client) { c.Address = port.Hold(t).String() }, Unreachable, "connection refused"},
		"an unknown host":           {func(c *Client) { c.Address = "unknown.invalid:1" }, Unreachable, "unknown.invalid"},
		"no token file":             {func(c *Client) { c.TokenFile += "x" }, NoToken, "no such file"},
		"no token at all":           {func(c *Client) { c.TokenFile = "" }, Rejected, "neither a token nor a certificate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := good
			tt.change(&c)
			chain, f := request(t, c, 20*time.Second)
			switch {
			case tt.kind == "" && (f != nil || len(chain) != 2):
				t.Errorf("a chain of %d, %v", len(chain), f)
			case tt.kind != "" && (f == nil || f.Kind != tt.kind || !strings.Contains(f.Reason, tt.want)):
				t.Errorf("got %+v\nwant %s with %q", f, tt.kind, tt.want)
			}
		})
	}
}

func TestTokensThatCannotBeSent(t *testing.T) {
	p := newPlane(t)
	for content, want := range map[string]string{"": "is empty", " \n": "is empty", "a\nb": "does not hold a token", "a\x00": "does not hold a token", "ä": "does not hold a token"} {
		c := p.options(t).Client
		put(t, c.TokenFile, []byte(content))
		if _, f := request(t, c, time.Second); f == nil || f.Kind != NoToken || !strings.Contains(f.Reason, want) {
			t.Errorf("a token %q: %v, want %q", content, f, want)
		}
	}
	if p.requests.Load() > 0 {
		t.Error("a request was sent")
	}
}

func TestTheTokenAndTheRootAreReadForEachCall(t *testing.T) {
	p := newPlane(t)
	c := p.options(t).Client
	if _, f := request(t, c, 20*time.Second); f != nil {
		t.Fatal(f)
	}
	put(t, c.TokenFile, []byte("another"))
	if _, f := request(t, c, 20*time.Second); f == nil || f.Kind != Rejected {
		t.Errorf("with another token: %v", f)
	}
	put(t, c.RootFile, newAuthority(t).RootsPEM())
	if _, f := request(t, c, 20*time.Second); f == nil || f.Kind != Untrusted {
		t.Errorf("with another root: %v", f)
	}
}

// speaker serves h over HTTP/2 with the plane's certificate, and returns the address.
func speaker(t testing.TB, p *plane, h http.HandlerFunc) string {
	t.Helper()
	serving := must(p.authority.NewServing(must(parse(planeID)), []string{planeName, contract.ControlPlaneName}, 0))
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*must(serving.Certificate())}, NextProtos: []string{"h2"}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String()
}

func TestAnswers(t *testing.T) {
	p := newPlane(t)
	whole := wire.Frame(wire.CertificateResponse{Chain: []string{string(p.authority.RootsPEM())}}.Marshal())
	grpc := func(body []byte, code, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+proto")
			w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
			w.Write(body)
			w.Header().Set("Grpc-Status", code)
			if message != "" {
				w.Header().Set("Grpc-Message", message)
			}
		}
	}
	compressed := bytes.Clone(whole)
	compressed[0] = 1
	tests := map[string]struct {
		answer http.HandlerFunc
		kind   Kind
		want   string
	}{
		"a certificate": {answer: grpc(whole, "0", "")},
		"byte by byte, with a pause after the length": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			for i := range whole {
				w.Write(whole[i : i+1])
				w.(http.Flusher).Flush()
			}
			w.Header().Set("Grpc-Status", "0")
		}},
		"unannounced trailers": {answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Write(whole)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		"status in the headers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "16")
			w.Header().Set("Grpc-Message", "token%20of %22x%22%0Aexpired")
		}, Rejected, `refuses this identity: token of "x" expired`},
		"permission denied":        {grpc(nil, "7", "no"), Rejected, "refuses this identity: no"},
		"refused without a reason": {grpc(nil, "7", ""), Rejected, "without a reason"},
		"a message of percents":    {grpc(nil, "16", "100%"), Rejected, "100%"},
		"a very long message":      {grpc(nil, "16", strings.Repeat("x", 5000)), Rejected, strings.Repeat("x", 500) + "..."},
		"unavailable":              {grpc(nil, "14", "later"), Unreachable, "cannot answer now: later"},
		"deadline exceeded":        {grpc(nil, "4", "slow"), Unreachable, "cannot answer now: slow"},
		"unimplemented":            {grpc(nil, "12", "unknown service"), Broken, "has no certificate service: unknown service"},
		"exhausted":                {grpc(nil, "8", "slow down"), Broken, "overloaded: slow down"},
		"another status":           {grpc(whole, "13", "oh"), Broken, "failed with status 13: oh"},
		"a status of words":        {grpc(whole, "fine", ""), Broken, "no gRPC status"},
		"no status": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Write(whole)
		}, Broken, "no gRPC status"},
		"HTTP 503": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, Broken, "HTTP status 503"},
		"a web page": {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") },
			Broken, `content of type "text/html`},
		"compressed":             {grpc(compressed, "0", ""), Broken, "compressed message (flag 1)"},
		"an empty body":          {grpc(nil, "0", ""), Broken, "0 bytes, which is no message"},
		"cut in its length":      {grpc(whole[:3], "0", ""), Broken, "3 bytes, which is no message"},
		"cut in its message":     {grpc(whole[:20], "0", ""), Broken, "ends after 15 of"},
		"two messages":           {grpc(append(bytes.Clone(whole), whole...), "0", ""), Broken, "behind its message"},
		"not protobuf":           {grpc(wire.Frame([]byte{0x0a, 0xff}), "0", ""), Broken, "not a protobuf message"},
		"no certificate":         {grpc(wire.Frame(nil), "0", ""), Broken, "without a certificate"},
		"an invalid certificate": {grpc(wire.Frame(wire.CertificateResponse{Chain: []string{"x"}}.Marshal()), "0", ""), Broken, "no certificate in it"},
		"too long":               {grpc(make([]byte, 2<<20), "0", ""), Broken, "more than"},
		"a reset in its middle": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Write(whole[:10])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, Unreachable, "is not reached"},
		"never": {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Unreachable, "does not answer in time"},
		"never after the first bytes": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Write(whole[:10])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, Unreachable, "does not answer in time"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // two of them wait for a timeout
			c := p.options(t).Client
			c.Address = speaker(t, p, tt.answer)
			within := time.Minute
			if strings.HasPrefix(name, "never") {
				within = 2 * time.Second
			}
			chain, f := request(t, c, within)
			switch {
			case tt.kind == "" && (f != nil || len(chain) != 1):
				t.Errorf("a chain of %d, %v", len(chain), f)
			case tt.kind != "" && (f == nil || f.Kind != tt.kind || !strings.Contains(f.Reason, tt.want)):
				t.Errorf("got %+v\nwant %s with %q", f, tt.kind, tt.want)
			}
		})
	}
}

func TestARequestIsWhatIstioExpects(t *testing.T) {
	p := newPlane(t)
	c := p.options(t).Client
	got := make(chan *http.Request, 1)
	body := make(chan []byte, 1)
	c.Address = speaker(t, p, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got <- r
		body <- raw
	})
	began := time.Now()
	request(t, c, 20*time.Second)
	took := time.Since(began)
	r := <-got
	if r.Method != "POST" || r.URL.Path != "/istio.v1.auth.IstioCertificateService/CreateCertificate" || r.ProtoMajor != 2 {
		t.Errorf("%s %s over %s", r.Method, r.URL, r.Proto)
	}
	token := strings.TrimSpace(string(must(os.ReadFile(c.TokenFile))))
	for name, want := range map[string]string{"Content-Type": "application/grpc", "Te": "trailers", "Authorization": "Bearer " + token} {
		if r.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, r.Header.Get(name), want)
		}
	}
	left := r.Header.Get("Grpc-Timeout")
	ms, err := strconv.ParseInt(strings.TrimSuffix(left, "m"), 10, 64)
	if err != nil || !strings.HasSuffix(left, "m") || ms >= 20000 || ms < 19999-took.Milliseconds() {
		t.Errorf("grpc-timeout is %q, want 20000m less %s at most", left, took)
	}
	request, err := wire.ParseCertificateRequest(must(wire.Unframe(<-body)))
	if err != nil || request.Life != time.Hour || !strings.HasPrefix(request.CSR, "-----BEGIN CERTIFICATE REQUEST-----") {
		t.Errorf("the request is %+v, %v", request, err)
	}
}

func TestAServerWithoutTLS(t *testing.T) {
	p := newPlane(t)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	silent := must(net.Listen("tcp", "127.0.0.1:0")) // accepts connections and sends nothing
	defer silent.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			conn.Close()
		}
	}()
	c := p.options(t).Client
	c.Address = listener.Addr().String()
	if _, f := request(t, c, 20*time.Second); f == nil || f.Kind != Untrusted || !strings.Contains(f.Reason, "does not speak TLS") {
		t.Errorf("plain HTTP: %+v", f)
	}
	c.Address = silent.Addr().String()
	if _, f := request(t, c, 200*time.Millisecond); f == nil || f.Kind != Unreachable || !strings.Contains(f.Reason, "in time") {
		t.Errorf("a server that sends nothing: %+v", f)
	}
}

func TestTheTokenIsUsedWhereTheCertificateIsRefused(t *testing.T) {
	p := newPlane(t)
	tests := map[string]func(subject *pkix.Name){
		"of a root with another name":  func(*pkix.Name) {},
		"of a root with the same name": func(subject *pkix.Name) { *subject = p.authority.Roots()[0].Subject },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			key := must(newKey(P256))
			root := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "another"}, IsCA: true, BasicConstraintsValid: true}
			change(&root.Subject)
			leaf := &x509.Certificate{SerialNumber: big.NewInt(8), URIs: []*url.URL{shop.URL()}, NotAfter: time.Now().Add(time.Hour)}
			der := must(x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), key))
			own := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			c := p.options(t).Client
			if _, err := c.CreateCertificate(ctx, Call{CSR: must(newCSR(key, shop)), Certificate: own}); err != nil {
				t.Errorf("with the token alone: %v", err)
			}
			c.TokenFile += "x"
			_, err := c.CreateCertificate(ctx, Call{CSR: must(newCSR(key, shop)), Certificate: own})
			var f *Fault
			if !errors.As(err, &f) || f.Kind == NoToken {
				t.Errorf("without a token: %v; want the control plane's error", err)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	root := newAuthority(f).RootsPEM()
	f.Add(wire.CertificateResponse{Chain: []string{string(root)}}.Marshal())
	f.Add([]byte{1, 0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		if chain, err := answer(message); err == nil && len(chain) == 0 {
			t.Error("an answer without a certificate was accepted")
		}
	})
}

func FuzzStored(f *testing.F) {
	key := must(newKey(P256))
	self := must(x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, key.Public(), key))
	f.Add(slices.Concat(must(wire.MarshalKey(key)), pem.EncodeToMemory(&pem.Block{Type: wire.CertificateBlock, Bytes: self})))
	f.Add(must(wire.MarshalKey(key)))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		for _, name := range stored {
			if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := readHeld(dir); err == nil && (h.key == nil || len(h.chain) == 0) {
			t.Errorf("a key or a certificate is missing: %+v", h)
		}
		readRoots(dir)
	})
}

func TestTLSPresentsTheCurrentCertificate(t *testing.T) {
	p := newPlane(t)
	o := p.options(t)
	w := run(t, o)
	s := w.phase(t, Have)
	// handshake connects to a server that requests a certificate, and returns the serial number
	// that the server received.
	handshake := func(identity string, serverNames ...string) (string, error) {
		serving := must(p.authority.NewServing(must(parse(identity)), serverNames, 0))
		l, err := tls.Listen("tcp", "127.0.0.1:0", serving.TLS())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		seen := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				seen <- err.Error()
				return
			}
			defer conn.Close()
			if err := conn.(*tls.Conn).Handshake(); err != nil {
				seen <- err.Error()
				return
			}
			serial := "none"
			if shown := conn.(*tls.Conn).ConnectionState().PeerCertificates; len(shown) > 0 {
				serial = shown[0].SerialNumber.Text(16)
			}
			seen <- serial
		}()
		config := w.TLS(l.Addr().String())
		config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", l.Addr().String(), config)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return <-seen, nil
	}
	if serial, err := handshake(planeID, planeName, contract.ControlPlaneName); err != nil || serial != s.Serial {
		t.Errorf("the control plane got %s, %v; want %s", serial, err, s.Serial)
	}
	if _, err := handshake(shop.String(), "app.shop.svc"); err == nil || !strings.Contains(err.Error(), "not the control plane") {
		t.Errorf("a workload in the control plane's place: %v, want it refused", err)
	}
	if _, err := handshake(planeID, planeName); err == nil || !strings.Contains(err.Error(), "no outriderd") {
		t.Errorf("another control plane: %v, want it refused", err)
	}
	if err := os.Remove(filepath.Join(o.Dir, storedCertificate)); err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(planeID, planeName, contract.ControlPlaneName); err == nil || !strings.Contains(err.Error(), "there is no certificate yet") {
		t.Errorf("without a certificate: %v, want an error", err)
	}
}
