package diagnose

import "testing"

// A diagnosis names the container that should have listened, and says "correct the address" only of a wrong one.
func TestWhoShouldListen(t *testing.T) {
	const correct = "correct the (?:address|port)"
	refused := func(port string) map[string]string {
		return map[string]string{"app.log": "2026-03-02T10:00:05.100Z ERROR dial tcp 127.0.0.1:" + port + ": connect: connection refused\n"}
	}
	with := func(logs map[string]string, file, lines string) map[string]string {
		logs[file] = lines
		return logs
	}
	app := "pod job\napp run=5-5:1\n"
	all(t, map[string]input{
		"an Envoy by a file, later":           {app + "envoy image=envoyproxy/envoy:v1.30.1 args=-c,/etc/envoy/e.yaml then=6", refused("9211"), "found sibling-down@app", "envoy", correct},
		"an unknown helper, later":            {app + "egress then=7", refused("7001"), "found sibling-down@app", "egress", correct + "|certain"},
		"nginx, later":                        {app + "tls image=nginx:1.27 then=6", refused("8443"), "found sibling-down@app", "tls", correct},
		"an unknown helper that fails":        {"pod\napp then=5\negress run=5-6:2 waits restarts=9", refused("7001"), "found sibling-down@app", "egress", correct},
		"a collector that fails":              {"pod\napp then=5\ntel image=otel/opentelemetry-collector-contrib:0.120.0 args=--config=/e.yaml run=5-6:1 waits restarts=9", with(refused("4318"), "tel.previous.log", "Error: invalid configuration: exporter x is not known\n"), "found app-crash@tel", "first why tel", correct},
		"a Vault agent that fails":            {"pod\napp then=5\nagent image=hashicorp/vault:1.15 args=agent,-config=/a.hcl run=5-6:1 waits restarts=9", refused("8200"), "found sibling-down@app", "agent", correct},
		"a port in the environment":           {app + "cache env=LISTEN_ADDR=0.0.0.0:7000 then=9", refused("7000"), "found sibling-down@app", "before cache listened|cache, ", correct},
		"PORT in the environment":             {app + "render env=PORT=3001 then=9", refused("3001"), "found sibling-down@app", "before render listened", correct},
		"its log, later":                      {app + "sub env=A=B then=2", with(refused("7000"), "sub.log", "2026-03-02T10:00:08.100Z INFO listening on 127.0.0.1:7000\n"), "found sibling-down@app", "sub", correct},
		"a helper that had ended":             {"pod job\nhelper run=1-3:0\napp run=5-5:1\n", refused("7000"), "found sibling-down@app", "helper", correct},
		"a helper that runs, of unknown port": {"pod\nhelper then=-600\napp run=5-6:1 then=30 restarts=4\n", map[string]string{"app.previous.log": "2026-03-02T10:00:05.100Z ERROR dial tcp 127.0.0.1:7000: connect: connection refused\n"}, "found sibling-down@app", "helper", correct},
		"two unknown helpers, later":          {app + "one then=7\ntwo then=8", refused("7001"), "found sibling-down@app", "one", correct},

		"another port in its log":             {"pod\napp run=5-6:1 then=30\nweb then=-600", map[string]string{"app.previous.log": refused("9001")["app.log"], "web.log": "2026-03-02T09:50:02.100Z INFO listening on 0.0.0.0:9000\n"}, "found sibling-down@app", correct + ".*9000", ""},
		"another port in its arguments":       {"pod\napp run=5-6:1 then=30\ncache image=redis:7 args=redis-server,--port,6380 then=-600", map[string]string{"app.previous.log": refused("6379")["app.log"]}, "found sibling-down@app", correct + ".*6380", ""},
		"the usual port of its program":       {"pod\napp run=5-6:1 then=30\ncache image=memcached:1.6 then=-600", map[string]string{"app.previous.log": refused("11212")["app.log"]}, "found sibling-down@app", correct + ".*11211", ""},
		"another port is declared":            {"pod\napp run=5-6:1 then=30\nweb port=8081 then=-600", map[string]string{"app.previous.log": refused("8080")["app.log"]}, "found sibling-down@app", correct, ""},
		"another port in the environment":     {"pod\napp run=5-6:1 then=30\nweb env=PORT=9000 then=-600", map[string]string{"app.previous.log": refused("9001")["app.log"]}, "found sibling-down@app", correct + ".*9000", ""},
		"no other container":                  {"pod\napp run=5-6:1 then=30\n", map[string]string{"app.previous.log": refused("5432")["app.log"]}, "found sibling-down@app", correct, ""},
		"only a proxy that captures":          {mesh("app run=5-6:1 then=30", "then=2"), map[string]string{"app.previous.log": refused("5432")["app.log"]}, "found sibling-down@app", correct, ""},
		"a shipper of logs":                   {"pod\napp run=5-6:1 then=30\nlogs image=fluent/fluent-bit:3.0 then=-600", map[string]string{"app.previous.log": refused("5432")["app.log"]}, "found sibling-down@app", "", "order|hold"},
		"another port is declared, and fails": {"pod\napp then=5\nweb port=8081 run=5-6:1 waits restarts=3", refused("8080"), "found sibling-down@app", "", ""},
		"its declared port, later":            {app + "db image=postgres:16 port=5432 then=9", refused("5432"), "found sibling-down@app", "before db listened", correct},
		"an init container, of a later one":   {"pod\ncheck init run=1-2:1 waits restarts=6\napp\npool image=edoburu/pgbouncer:1.21 port=5432\n", map[string]string{"check.previous.log": "2026-03-02 10:00:01.100 ERROR could not connect to server at 127.0.0.1: Connection refused\n"}, "found sibling-down@check", "pool.*only when check has ended.*\n.*native sidecar", correct},
		"an init container, of a sidecar":     {"pod\ncheck init run=1-2:1 waits restarts=6\nsql native image=gcr.io/x/cloud-sql-proxy:2.9 args=--port=5432\napp\n", map[string]string{"check.previous.log": "2026-03-02T10:00:01.100Z ERROR dial tcp 127.0.0.1:5432: connect: connection refused\n"}, "found sibling-down@check", "move sql.* before check", correct},
		"an init container, after a sidecar":  {"pod\nsql native image=gcr.io/x/cloud-sql-proxy:2.9 args=--port=5432 then=0\ncheck init run=1-2:1 waits restarts=1\napp\n", map[string]string{"check.previous.log": "2026-03-02T10:00:01.100Z ERROR dial tcp 127.0.0.1:5432: connect: connection refused\n"}, "found sibling-down@check", "startup probe", correct + "|move sql"},
		"a unix socket, and TCP":              {"pod\nsql image=gcr.io/x/cloud-sql-proxy:2.9 args=--port=5432,x:y:z then=-600\napp run=1-2:1 then=10\n", map[string]string{"app.previous.log": "2026-03-02T10:00:01.100Z ERROR dial unix /cloudsql/x:y:z/.s.PGSQL.5432: connect: connection refused\n"}, "found sibling-down@app", "", "order|startup"},
	})
}
