package calls

import (
	"testing"

	"outrider.dev/internal/doctor/evidence"
)

// The port of a call stands in the settings of a database, and the path of a unix socket may have colons.
func TestSettingsAndSockets(t *testing.T) {
	right := 0
	all := map[string]string{
		`PDO->__construct('mysql:host=127.0.0.1;port=3307;dbname=crm', 'crm') SQLSTATE[HY000] [2002] Connection refused`: "127.0.0.1:3307",
		`SQLSTATE[HY000] [2002] Connection refused (pgsql:host=db.shop;dbname=crm;sslmode=disable;port=5433)`:            "db.shop:5433",
		`cannot connect with "host=pg.data user=app dbname=crm port=6432 sslmode=disable": connection refused`:           "pg.data:6432",
		`connect ECONNREFUSED (Server=sql.data;Port=3308;Database=crm;Uid=app)`:                                          "sql.data:3308",
		`connection refused: Data Source=tcp:mssql.data,1433;Initial Catalog=crm`:                                        "mssql.data:1433",
		`connection to server on socket "/cloudsql/acme:europe-west1:core/.s.PGSQL.5432" failed: Connection refused`:     "/cloudsql/acme:europe-west1:core/.s.PGSQL.5432",
		`dial unix "/run/a:b/app.sock": connect: connection refused`:                                                     "/run/a:b/app.sock",
		`connect to socket "/var/run/postgresql/.s.PGSQL.5432" failed: Connection refused`:                               "/var/run/postgresql/.s.PGSQL.5432",
		`dial unix /run/app.sock: connect: connection refused`:                                                           "/run/app.sock",
		`mysql:host=127.0.0.1;dbname=crm: Connection refused, report to help@example.com port=1`:                         "127.0.0.1",
		`connect to 10.0.0.7:5432 failed: Connection refused; settings host=standby.data;port=5433`:                      "10.0.0.7:5432",
	}
	for line, want := range all { // in any order: each is a line
		if got := named([]byte(line)).String(); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
			continue
		}
		right++
	}
	t.Logf("%d of %d are right", right, len(all))
}

// An event or a status that a program prints befell another program.
func TestObjectsOfOthers(t *testing.T) {
	right := 0
	all := map[string]bool{
		`{"metadata":{"name":"a.1"},"reason":"Unhealthy","message":"Get http://10.4.1.1:80/: dial tcp 10.4.1.1:80: connect: connection refused","involvedObject":{"kind":"Pod","name":"a"}}`:      true,
		`{"level":"info","event":{"regarding":{"kind":"Pod","name":"b"},"reason":"Unhealthy","note":"dial tcp 10.4.1.1:80: connect: connection refused"}}`:                                        true,
		`I0302 recorder.go:104] "Event occurred" involvedObject="shop/web" reason="FailedMount" message="dial tcp 10.4.1.1:443: connect: connection refused"`:                                     true,
		`time=10:00 msg="watch" obj="{\"involvedObject\":{\"kind\":\"Pod\"},\"reason\":\"BackOff\",\"message\":\"connect: connection refused\"}"`:                                                 true,
		`{"pod":"web","status":{"containerStatuses":[{"lastState":{"terminated":{"message":"dial tcp 10.4.1.1:443: connect: connection refused"}}}]}}`:                                            true,
		`I0302 10:00:01 event.go:294] Event(v1.ObjectReference{Kind:"Pod", Namespace:"shop", Name:"web"}): type: 'Warning' reason: 'Unhealthy' dial tcp 10.4.1.1:80: connect: connection refused`: true,

		`{"level":"error","msg":"dial tcp 10.4.1.1:80: connect: connection refused","reason":"upstream down"}`:                                    false,
		`{"message":"dial tcp 10.4.1.1:80: connect: connection refused","kind":"http","name":"orders"}`:                                           false,
		`event bus: publish failed reason="connection refused" addr=10.4.1.1:5672`:                                                                false,
		`{"level":"error","msg":"regarding the order","error":"dial tcp 10.4.1.1:80: connect: connection refused"}`:                               false,
		`failed to record event: Post "https://10.96.0.1:443/api/v1/namespaces/shop/events": dial tcp 10.96.0.1:443: connect: connection refused`: false,
	}
	for line, want := range all { // in any order: each is a line
		if got := isStored(evidence.Line{Text: []byte(line)}); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
			continue
		}
		right++
	}
	t.Logf("%d of %d are right", right, len(all))
}
