package diagnose

import (
	"strings"
	"testing"
)

// A line without a time has not the time that is quoted in another one, and the last word of a run is of its end.
func TestMomentsOfLines(t *testing.T) {
	const ready = "2026-03-02T10:00:09.100000Z\tinfo\tEnvoy proxy is ready\n"
	const refused = "dial tcp 10.96.3.3:8080: connect: connection refused\n"
	long, died := mesh("app run=5-2000:7 waits", "then=3"), mesh("app run=5-2000:7", "run=3-1998:0")
	runs := mesh("app then=5", "then=3")
	ended := func(lines string) map[string]string {
		return map[string]string{"app.previous.log": lines, "istio-proxy.log": ready}
	}
	all(t, map[string]input{
		"a header of an answer":       {died, map[string]string{"app.log": "HTTP/1.1 200 OK\ncontent-length: 0\ndate: Mon, 02 Mar 2026 10:00:06 GMT\n\nok\nwget: can't connect to remote host (10.96.3.3): Connection refused\n", "istio-proxy.log": ready}, "", "", "startup-race"},
		"a header of an answer, curl": {died, map[string]string{"app.log": "< HTTP/1.1 200 OK\n< Date: Mon, 02 Mar 2026 10:00:06 GMT\n< Last-Modified: Mon, 02 Mar 2026 09:00:00 GMT\ncurl: (7) Failed to connect to 10.96.3.3 port 8080 after 1 ms: Connection refused\n", "istio-proxy.log": ready}, "", "", "startup-race"},
		"a certificate":               {long, ended("subject: CN=app\nstart date: Mar  2 10:00:05 2026 GMT\n" + refused), "", "", "startup-race"},
		"a certificate, in words":     {long, ended("certificate not before: 2026-03-02 10:00:06 UTC\nworking\n" + refused), "", "", "startup-race"},
		"a record":                    {long, ended("last row was written 2026-03-02 10:00:06\ndone with 81 rows\n" + refused), "", "", "startup-race"},
		"a record, German":            {long, ended("letzter Stand vom 2026-03-02 10:00:06\nfertig\n" + refused), "", "", "startup-race"},
		"a token":                     {long, ended("token valid until 2026-03-02T10:00:07Z\n" + refused), "", "", "startup-race"},
		"the end of a run, Python":    {long, ended("2026-03-02 10:00:06,100 INFO starting\nTraceback (most recent call last):\n  File \"/x.py\", line 3, in <module>\nConnectionRefusedError: [Errno 111] Connection refused: 10.96.3.3:8080/tcp\n"), "", "", "startup-race"},
		"the end of a run, Node":      {long, ended("{\"level\":30,\"time\":1772445606100,\"msg\":\"starting\"}\nnode:internal/process/promises:288\nError: connect ECONNREFUSED 10.96.3.3:8080\n    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1555:16)\n"), "", "", "startup-race"},
		"the end of a run, no times":  {long, ended("starting\nworking\n" + refused), "", "", "startup-race"},
		"the end of a run, Rust":      {long, ended("2026-03-02T10:00:06.1Z  INFO app: starting\nthread 'main' panicked at src/main.rs:9:5:\ncalled `Result::unwrap()` on an `Err` value: Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" } 10.96.3.3:8080\n"), "", "", "startup-race"},

		"between two lines with times":        {runs, map[string]string{"app.log": "2026-03-02T10:00:06.100Z INFO starting\nno settings, defaults are used: " + refused + "2026-03-02T10:00:20.100Z INFO started\n", "istio-proxy.log": ready}, "", "", "(?:certain|likely) startup-race"},
		"the cause of an error, Java":         {runs, map[string]string{"app.log": "2026-03-02 10:00:06.100 ERROR 1 --- [main] config : no settings\njava.net.ConnectException: Connection refused: config/10.96.3.3:8080\n\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)\n2026-03-02 10:20:00.100  INFO 1 --- [main] tick\n", "istio-proxy.log": ready}, "found startup-race@app", "", ""},
		"the cause of a warning, Python":      {runs, map[string]string{"app.log": "2026-03-02 10:00:06,100 WARNING no settings\nTraceback (most recent call last):\n  File \"/x.py\", line 3, in get\nConnectionRefusedError: [Errno 111] Connection refused: 10.96.3.3:8080/tcp\n2026-03-02 10:20:00,100 INFO tick\n", "istio-proxy.log": ready}, "found startup-race@app", "", ""},
		"a short run":                         {mesh("app run=5-6:1 waits", "then=3"), ended("2026-03-02 10:00:05,100 INFO starting\nTraceback (most recent call last):\n  File \"/x.py\", line 3, in <module>\nConnectionRefusedError: [Errno 111] Connection refused: 10.96.3.3:8080/tcp\n"), "found startup-race@app", "", ""},
		"a short run, no times":               {mesh("app run=5-6:1 waits", "then=3"), ended("starting\n" + refused), "found startup-race@app", "", ""},
		"a time after the level":              {runs, map[string]string{"app.log": "INFO  [main] 2026-03-02T10:00:05.100Z starting\nERROR [main] 2026-03-02T10:00:06.100Z " + refused, "istio-proxy.log": ready}, "found startup-race@app", "certain", ""},
		"a time after a prefix":               {runs, map[string]string{"app.log": "app-1  | 2026-03-02T10:00:06.100Z " + refused, "istio-proxy.log": ready}, "found startup-race@app", "certain", ""},
		"a time in a field":                   {runs, map[string]string{"app.log": "level=error msg=\"could not ask\" time=2026-03-02T10:00:06.100Z err=\"" + strings.TrimSpace(refused) + "\"\n", "istio-proxy.log": ready}, "found startup-race@app", "certain", ""},
		"a time in brackets":                  {runs, map[string]string{"app.log": "10.1.0.7 - - [02/Mar/2026:10:00:06 +0000] upstream: " + refused, "istio-proxy.log": ready}, "found startup-race@app", "certain", ""},
		"after a header":                      {runs, map[string]string{"app.log": "date: Mon, 02 Mar 2026 09:00:06 GMT\n2026-03-02T10:00:06.100Z " + refused, "istio-proxy.log": ready}, "found startup-race@app", "certain", ""},
		"the end of a run, with its own time": {long, ended("2026-03-02T10:00:06.100Z INFO starting\n2026-03-02T10:33:19.100Z FATAL " + refused), "", "", "startup-race"},
	})
}
