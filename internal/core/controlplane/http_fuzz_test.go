package controlplane

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzHTTP sends arbitrary requests to the port for metrics and readiness: each is answered, and so is
// the next one.
func FuzzHTTP(f *testing.F) {
	at := started(f, Options{Folder: f.TempDir(), State: f.TempDir()})
	for _, seed := range []string{"/metrics", "/ready", "/debug/proxies", "/debug/status", "/debug/proxy?id=a", "/debug/proxy?id=%00&id=b", "/debug/problems",
		"/debug/pprof/", "/debug/pprof/heap?debug=1", "//", "/%00", "/debug/../metrics", "*"} {
		f.Add("GET", seed, "text/plain")
		f.Add("POST", seed, "application/openmetrics-text")
	}
	calls := 1
	f.Fuzz(func(t *testing.T, method, target, accept string) {
		if strings.Contains(target, "profile") || strings.Contains(target, "trace") || strings.Contains(target, "seconds") {
			return // profiles last as long as the request says
		}
		text := method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: " + accept + "\r\n\r\n"
		if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text))); err != nil || r.ContentLength != 0 {
			return
		}
		// The rate of connections from one address is limited.
		calls++
		from := &net.TCPAddr{IP: net.IPv4(127, byte(calls>>16), byte(calls>>8), byte(calls))}
		c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", at.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c, text)
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusInternalServerError {
			t.Errorf("%q: %s", text, res.Status)
		}
	})
}
