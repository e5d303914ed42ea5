package envoy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// inbound is an Envoy with one inbound listener, which answers 200, and a long drain time.
func inbound(t *testing.T) (r *running, address string) {
	port := freePort(t)
	o := alone()
	o.DrainTime = time.Hour
	o.Extra = json.RawMessage(fmt.Sprintf(`{"dynamic_resources": null, "static_resources": {"listeners": [{
	  "name": "in", "traffic_direction": "INBOUND",
	  "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}},
	  "filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
	    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	    "stat_prefix": "in",
	    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
	      {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
	    "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]
	  }}]}]}]}}`, port))
	r = start(t, o)
	eventually(t, "LIVE", func() bool { ready, _, _ := r.admin.Ready(context.Background()); return ready })
	return r, fmt.Sprintf("127.0.0.1:%d", port)
}

// ask makes one request on a connection, and says whether the answer ends it.
func ask(c net.Conn) (closing bool, err error) {
	if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false, err
	}
	return res.Close, res.Body.Close()
}

// Envoy's own drain time is fixed at its start. Two calls make one of any length:
// DiscourageInbound, which does not end, and CloseInbound when it shall.
func TestADrainOfAnyLength(t *testing.T) {
	r, address := inbound(t)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	before := dial()
	if closing, err := ask(before); err != nil || closing {
		t.Fatalf("before the drain: closing %t, %v", closing, err)
	}
	idle := dial()
	if err := r.admin.Drain(t.Context(), DiscourageInbound); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer that ends its connection", func() bool { closing, err := ask(dial()); return err == nil && closing })
	if err := r.admin.Drain(t.Context(), CloseInbound); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a refusal", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	for name, c := range map[string]net.Conn{"that had a request": before, "that had none": idle} {
		if closing, err := ask(c); err != nil || !closing {
			t.Errorf("a connection %s: closing %t, %v; want an answer that ends it", name, closing, err)
		}
	}
}
