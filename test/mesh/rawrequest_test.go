package mesh

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// rawRequests contains bytes of clients, and the requests that the application gets of them while /admin, the method
// DELETE and the host admin.shop are denied: method, target and host of each. A | is the end of a write, and at an = the
// client waits for the head of a response.
var rawRequests = map[string]struct{ sent, arrives string }{
	"a request":                          {"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET /x x"},
	"a method in two writes":             {"G|ET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a path in two writes":               {"GET /ad|min HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a host in two writes":               {"GET /x HTTP/1.1\r\nHost: admin.s|hop\r\nConnection: close\r\n\r\n", ""},
	"an allowed request in two writes":   {"GET /x HT|TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET /x x"},
	"empty lines first":                  {"\r\n|GET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a byte first":                       {"X|GET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a second request":                   {"GET /x HTTP/1.1\r\nHost: x\r\n\r\n|GET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET /x x"},
	"both lengths":                       {"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a coding that is none":              {"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"two lengths":                        {"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"chunks, then a request":             {"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "POST /x x"},
	"a WebSocket of /admin":              {"GET /admin HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n=", ""},
	"a WebSocket with a request inside":  {"GET /x HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n=GET /admin HTTP/1.1\r\nHost: x\r\n\r\n", "GET /x x"},
	"an upgrade to HTTP/2":               {"GET /x HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n=GET /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET /x x"},
	"CONNECT of a path":                  {"CONNECT /admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"CONNECT of a host":                  {"CONNECT admin.shop:80 HTTP/1.1\r\nHost: admin.shop:80\r\nConnection: close\r\n\r\n", ""},
	"OPTIONS of no path":                 {"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"HTTP/0.9":                           {"GET /admin\r\n\r\n", ""},
	"HTTP/1.0":                           {"GET /x HTTP/1.0\r\nHost: x\r\n\r\n", "GET /x x"},
	"HTTP/1.0 of /admin":                 {"GET /admin HTTP/1.0\r\nHost: x\r\n\r\n", ""},
	"HTTP/1.0 of the host":               {"GET /x HTTP/1.0\r\nHost: admin.shop\r\n\r\n", ""},
	"HTTP/1.0 without a host":            {"GET /x HTTP/1.0\r\n\r\n", "GET /x localhost"},
	"an absolute target":                 {"GET HTTP://x//admin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a tab":                              {"GET /admin\tHTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a fragment":                         {"GET /admin#f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a NUL":                              {"GET /admin%00 HTTP/1.1\r\nHost: a\x00dmin.shop\r\nConnection: close\r\n\r\n", ""},
	"a method in lower case":             {"delete /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
	"a method for other servers":         {"GET /x HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: DELETE\r\nConnection: close\r\n\r\n", "GET /x x"},
	"a host for other servers":           {"GET /x HTTP/1.1\r\nHost: x\r\nX-Forwarded-Host: admin.shop\r\nConnection: close\r\n\r\n", "GET /x x"},
	"a host in a line that is continued": {"GET /x HTTP/1.1\r\nHost:\r\n admin.shop\r\nConnection: close\r\n\r\n", ""},
}

// raw sends the bytes of each of rawRequests.
func (d *door) raw(t *testing.T) {
	var mu sync.Mutex
	var arrived []string
	take := func() string {
		mu.Lock()
		defer mu.Unlock()
		out := strings.Join(arrived, ", ")
		arrived = nil
		return out
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived = append(arrived, r.Method+" "+r.RequestURI+" "+r.Host)
		mu.Unlock()
		if r.Header.Get("Upgrade") == "websocket" {
			websocket(w)
		}
	})}
	l := d.server.listen(8082)
	go s.Serve(l)
	denied := func(of mesh.Attribute, value string) mesh.AuthorizationRule {
		return mesh.AuthorizationRule{To: [][]mesh.Condition{{{Of: of, Values: []string{value}}}}}
	}
	d.policies(t, &mesh.AuthorizationSpec{Name: "only", Namespace: namespace, Selector: map[string]string{"app": "server"}, Deny: true,
		Rules: []mesh.AuthorizationRule{denied(mesh.Path, "/admin"), denied(mesh.Method, "DELETE"), denied(mesh.HostName, "admin.shop")}})
	for name, tt := range rawRequests { // any order: independent calls
		d.becomes(t, name, tt.arrives, func() string {
			take()
			if err := d.plain.write(netip.AddrPortFrom(d.server.v4, 8082), tt.sent); err != nil {
				return err.Error()
			}
			return take()
		})
	}
}

// write sends bytes as rawRequests writes them, and reads responses until the last one: the peer handles nothing after it.
func (p *pod) write(to netip.AddrPort, bytes string) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	c, err := p.dial(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(process.Patience))
	before, after, waits := strings.Cut(bytes, "=")
	for part := range strings.SplitSeq(before, "|") {
		io.WriteString(c, part)
	}
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadResponse(in, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err != nil {
			return nil // closed, or bytes after an upgrade
		}
		io.Copy(io.Discard, r.Body)
		if r.Close {
			return nil
		}
		if waits {
			io.WriteString(c, after)
			c.(interface{ CloseWrite() error }).CloseWrite()
		}
		waits = false
	}
}
