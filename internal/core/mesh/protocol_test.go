package mesh

import "testing"

func TestProtocolOf(t *testing.T) {
	tests := map[string]struct {
		app, name, transport string
		want                 Protocol
	}{
		"a name":                                {"", "http", "TCP", HTTP},
		"a prefix":                              {"", "http2-api", "", HTTP2},
		"a prefix in capitals":                  {"", "GRPC-api", "", GRPC},
		"grpc-web is HTTP":                      {"", "grpc-web", "", HTTP},
		"grpc-web with more is HTTP":            {"", "grpc-web-ui", "", HTTP},
		"grpc-website is gRPC":                  {"", "grpc-website", "", GRPC},
		"https is the application's TLS":        {"", "https", "", TLS},
		"mysql: the server speaks first":        {"", "mysql", "", ServerFirst},
		"redis and mongo: the client does":      {"", "mongo-main", "", TCP},
		"a name without a meaning":              {"", "web", "", Unknown},
		"no dash after the prefix":              {"", "httpapi", "", Unknown},
		"no declaration":                        {"", "", "", Unknown},
		"appProtocol before the name":           {"grpc", "http-api", "", GRPC},
		"an unknown appProtocol hides the name": {"example.com/x", "http-api", "", Unknown},
		"h2c":                                   {"kubernetes.io/h2c", "", "", HTTP2},
		"web sockets":                           {"kubernetes.io/ws", "", "", HTTP},
		"web sockets over TLS":                  {"kubernetes.io/wss", "", "", TLS},
		"UDP by transport":                      {"http", "http", "UDP", UDP},
		"not UDP by name":                       {"", "udp-dns", "TCP", Unknown},
		"not UDP by appProtocol":                {"udp", "http", "TCP", Unknown},
		"SCTP is left alone":                    {"", "http", "SCTP", SCTP},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ProtocolOf(tt.app, tt.name, tt.transport); got != tt.want {
				t.Errorf("ProtocolOf = %q, want %q", got, tt.want)
			}
		})
	}
}
