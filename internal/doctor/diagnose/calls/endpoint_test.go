package calls

import (
	"testing"

	"outrider.dev/internal/doctor"
)

// The destination of a failed call is the endpoint that the words about the failure are nearest to.
func TestEndpoints(t *testing.T) {
	for line, want := range map[string]doctor.Destination{
		`Get "https://config:8080/v1": dial tcp 10.96.8.2:8080: connect: connection refused`:            {Host: "10.96.8.2", Name: "config", Port: 8080},
		`dial tcp [fd00::2]:443: connect: connection refused`:                                           {Host: "fd00::2", Port: 443},
		`read tcp 10.1.1.4:51234->10.96.8.2:8080: read: connection reset by peer`:                       {Host: "10.96.8.2", Port: 8080},
		`Failed to connect to prices/10.96.8.2:8080: Connection refused`:                                {Host: "10.96.8.2", Name: "prices", Port: 8080},
		`connection to server at "db" (10.96.8.3), port 5432 failed: Connection refused`:                {Host: "10.96.8.3", Name: "db", Port: 5432},
		`GET http://config/log: connection refused`:                                                     {Host: "config", Port: 80},
		`dial unix /run/app.sock: connect: connection refused`:                                          {Host: "/run/app.sock", Network: doctor.Unix},
		`write udp 10.1.1.4:4000->10.96.0.10:53: write: connection refused`:                             {Host: "10.96.0.10", Network: doctor.UDP, Port: 53},
		`09:30:05 prices:8080 connection refused`:                                                       {Host: "prices", Port: 8080},
		`client.go:57 prices:8080 connection refused`:                                                   {Host: "prices", Port: 8080},
		`connection refused client.go:57`:                                                               {},
		`connection refused at node:net:1606:16`:                                                        {},
		`connection refused 09:30:05`:                                                                   {},
		`connection refused 09:30`:                                                                      {},
		`connection refused by prices:99999`:                                                            {},
		`connection refused, see https://help.example.com:8443/refused; it was prices.shop.svc:8080/v1`: {Host: "prices.shop.svc", Port: 8080},
		`from a.example.com:9090 to prices:8080: connection refused`:                                    {Host: "prices", Port: 8080},
		`prices:8080 of server "shop" connection refused`:                                               {Host: "prices", Port: 8080},
	} {
		if got := named([]byte(line)); got != want {
			t.Errorf("%+v, want %+v: %s", got, want, line)
		}
	}
}
