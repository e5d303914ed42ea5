package evidence

import (
	"fmt"
	"testing"
)

func TestReadAccess(t *testing.T) {
	for name, tt := range map[string]struct{ line, want string }{
		"Envoy's format":   {`[2026-11-24T03:18:19.480Z] "GET /orders HTTP/1.1" 503 UH 0 19 0 - "-" "curl/8" "id" "shop" "-"`, `"GET /orders HTTP/1.1" 503 [UH] ""`},
		"Istio's":          {`[2026-11-24T03:18:19.480Z] "GET / HTTP/1.1" 503 UF,URX upstream_reset_before_response_started{connection_failure} - "delayed connect error: 111" 0 91 3 - "-" "curl/8" "id" "shop:80" "10.0.0.7:80" outbound|80||shop 10.0.0.9:1 10.96.0.7:80 10.0.0.9:2 - default`, `"GET / HTTP/1.1" 503 [UF URX] "10.0.0.7:80"`},
		"a TCP connection": {`[2026-11-24T03:18:19.480Z] "- - -" 0 - - - "-" 5 7 10 - "-" "-" "-" "-" "10.0.0.7:5432" outbound|5432||db`, `"- - -" 0 [] "10.0.0.7:5432"`},
		"JSON":             {`{"method":"GET","path":"/x","protocol":"HTTP/2","response_code":404,"response_flags":"NR","upstream_host":"-","start_time":"2026-11-24T03:18:19.480Z"}`, `"GET /x HTTP/2" 404 [NR] ""`},
		"Envoy's own log":  {"[2026-11-24 04:08:31.106][21452][info][config] loading 0 listener(s)", ""},
		"nginx's":          {`10.0.0.7 - - [24/Nov/2026:11:18:19 +0800] "GET / HTTP/1.1" 200 5 "-" "curl"`, ""},
		"other JSON":       {`{"level":"info"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, ok := ReadAccess([]byte(tt.line))
			got := ""
			if ok {
				got = fmt.Sprintf("%q %d %v %q", a.Request, a.Code, a.Flags, a.Upstream)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
