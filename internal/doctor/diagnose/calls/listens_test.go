package calls

import (
	"fmt"
	"testing"
)

func TestPortsOf(t *testing.T) {
	for line, want := range map[string]string{
		"      Now listening on: http://[::]:8080":                                     "[8080] false",
		"Tomcat started on port(s): 8080 (http) with context path ''":                  "[8080] false",
		"Tomcat started on ports 8080 (http), 8443 (https)":                            "[8080] false",
		"INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)":    "[8000] true",
		" * Running on http://localhost:5000":                                          "[5000] true",
		"[2024-11-24 10:00:00 +0000] [1] [INFO] Listening at: http://0.0.0.0:8000 (1)": "[8000] false",
		"2026/11/24 03:18:19 listening on :9090":                                       "[9090] false",
		`{"level":"info","msg":"listening","addr":":8080"}`:                            "[8080] false",
		`{"level":"info","addr":"0.0.0.0:8081","msg":"server listening"}`:              "[8081] false",
		"[GIN-debug] Listening and serving HTTP on :8080":                              "[8080] false",
		"* Listening on http://0.0.0.0:3000":                                           "[3000] false",
		"Server listening on port 3000":                                                "[3000] false",
		"⇨ http server started on [::]:1323":                                           "[1323] false",
		"Debugger listening on ws://127.0.0.1:9229/0f":                                 "[] false",
		"Listening for transport dt_socket at address: 5005":                           "[] false",
		"listen tcp :8080: bind: address already in use":                               "[] false",
		"listening on /run/app.sock":                                                   "[] false",
		"started 12 workers":                                                           "[] false",
	} {
		ports, local := PortsIn([]byte(line))
		if got := fmt.Sprint(ports, local); got != want {
			t.Errorf("%s, want %s: %s", got, want, line)
		}
	}
}
