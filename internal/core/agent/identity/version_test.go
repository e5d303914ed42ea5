package identity

import (
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"
)

// The agent calls outriderd by TLS 1.3 alone, and another authority by TLS 1.2 too.
func TestVersionsOfTLS(t *testing.T) {
	old := httptest.NewUnstartedServer(nil)
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS12}
	old.StartTLS()
	defer old.Close()
	for outriderd, want := range map[bool]string{true: "protocol version not supported", false: "unknown root"} { // any order: independent calls
		c := &Client{Address: old.Listener.Addr().String(), Outriderd: outriderd}
		conn, err := tls.Dial("tcp", c.Address, c.tls(nil))
		if err == nil {
			conn.Close()
			t.Fatal("the server is trusted")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("outriderd: %t: %v, want %q", outriderd, err, want)
		}
	}
}
