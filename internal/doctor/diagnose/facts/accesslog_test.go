package facts

import (
	"fmt"
	"strings"
	"testing"
)

func TestAttemptOf(t *testing.T) {
	for line, want := range map[string]string{
		`[2024-07-08T09:10:36.412Z] "- - -" 0 UF,URX - - "-" 0 0 10001 - "-" "-" "-" "-" "10.40.0.3:5432" PassthroughCluster - 10.40.0.3:5432 10.8.2.77:40112 - -`:                                                                                                       "{10.40.0.3:5432 10.001s false} true",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UF upstream_reset_before_response_started{connection_failure} - "TLS" 0 91 3 - "-" "curl" "id" "api" "10.2.0.7:8080" outbound|80||api.shop.svc.cluster.local - 10.9.0.1:80 10.2.0.8:40112 - default`:           "{api (10.2.0.7:8080) 3ms false} true",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UF 0 91 5000 - "-" "curl" "id" "api" "10.2.0.7:8080"`:                                                                                                                                                          "{api (10.2.0.7:8080) 5s false} true",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UF 0 91 5000 - "-" "curl" "id" "api:8080" "api:8080"`:                                                                                                                                                          "{api:8080 5s false} true",
		`[ 33391.512001s]  WARN ThreadId(01) outbound:proxy{addr=10.96.88.140:8080}:service{ns=stock name=inventory port=8080}:endpoint{addr=10.244.3.77:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.244.3.77:8080: Connection refused (os error 111)`: "{inventory.stock:8080 (10.244.3.77:8080) 0s false} true",
		`[ 5.0s]  WARN ThreadId(01) outbound:accept{client.addr=10.2.0.8:3}:proxy{addr=10.2.0.9:5432}:endpoint{addr=10.2.0.9:5432}: linkerd_reconnect: Failed to connect error=connect timed out after 1s`:                                                               "{10.2.0.9:5432 1s false} true",
		`[ 35.0s]  WARN ThreadId(02) dst:controller{addr=linkerd-dst-headless.linkerd.svc.cluster.local:8086}:endpoint{addr=10.42.0.9:8086}: linkerd_reconnect: Failed to connect error=connect timed out after 1s`:                                                      "{ 0s false} false",
		`[2024-07-08T09:10:36.412Z] "GET /UF HTTP/1.1" 200 - via_upstream - "-" 0 91 3 2 "-" "curl" "id" "api" "10.2.0.7:8080" outbound|80||api - - - - -`:                                                                                                               "{ 0s false} false",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - "-" "curl" "id" "api.shop" "-" outbound|80|v2|api.shop.svc.cluster.local - 10.9.0.1:80 10.2.0.8:40112 - default`:                                                         "{api.shop.svc.cluster.local:80 0s true} true",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UH 0 19 0 - "-" "curl" "id" "api:8080" "-"`:                                                                                                                                                                    "{api:8080 0s true} true",
		`[2024-07-08T09:10:36.412Z] "- - -" 0 UH - - "-" 0 0 0 - "-" "-" "-" "-" "-" outbound|5432||db.shop.svc.cluster.local - 10.9.0.2:5432 10.2.0.8:40112 - -`:                                                                                                        "{db.shop.svc.cluster.local:5432 0s true} true",
		`[2024-07-08T09:10:36.412Z] "GET /x HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - "-" "curl" "id" "api" "-" inbound|80|| - 10.9.0.1:80 10.2.0.8:40112 - default`:                                                                                           "{ 0s false} false",
		`[2024-07-08T09:10:36.412Z] "GET /UH HTTP/1.1" 200 - via_upstream - "-" 0 91 3 2 "-" "curl" "id" "api" "10.2.0.7:8080" outbound|80||api - - - - -`:                                                                                                               "{ 0s false} false",
		`UF`: "{ 0s false} false",
	} {
		a, ok := AttemptOf(line)
		if got := fmt.Sprint(a, ok); got != want {
			t.Errorf("%s, want %s: %s", got, want, line)
		}
	}
}

// A destination has a port, and no time is negative.
func FuzzAttempt(f *testing.F) {
	f.Add(`[2024-07-08T09:10:36.412Z] "- - -" 0 UF,URX - - "-" 0 0 10001 - "-" "-" "-" "-" "10.40.0.3:5432" PassthroughCluster - 10.40.0.3:5432 10.8.2.77:40112 - -`)
	f.Fuzz(func(t *testing.T, line string) {
		a, ok := AttemptOf(line)
		if a.Took < 0 || !ok && a != (Attempt{}) || strings.ContainsAny(a.To, "\"\n") {
			t.Errorf("%q: %+v, %t", line, a, ok)
		}
	})
}
