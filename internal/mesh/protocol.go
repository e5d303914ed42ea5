package mesh

import "strings"

// protocols are what a service's port may say about itself: in appProtocol, or before
// the first dash of its name. Sources: Istio's "Protocol Selection", Kubernetes'
// standard application protocols (KEP-3726), the protocols' own specifications for who
// speaks first. Port numbers are never a reason: only what is declared counts.
var protocols = map[string]Protocol{
	"http":     HTTP,
	"http1":    HTTP,
	"grpc-web": HTTP, // gRPC in HTTP/1.1 bodies
	"http2":    HTTP2,
	"h2c":      HTTP2,
	"grpc":     GRPC,

	"https": TLS,
	"tls":   TLS,

	"tcp":        TCP,
	"redis":      TCP,
	"mongo":      TCP,
	"postgres":   TCP,
	"postgresql": TCP,
	"amqp":       TCP,
	"kafka":      TCP,
	"ldap":       TCP,

	"mysql": ServerFirst,
	"smtp":  ServerFirst,
	"ftp":   ServerFirst,
	"ssh":   ServerFirst,
	"pop3":  ServerFirst,
	"imap":  ServerFirst,
	"nats":  ServerFirst,

	"udp": UDP,

	"kubernetes.io/h2c": HTTP2,
	"kubernetes.io/ws":  HTTP,
	"kubernetes.io/wss": TLS,
}

// ProtocolOf returns what a port of a service is declared as: by its appProtocol, else by
// its name. Transport is the Kubernetes protocol; empty is TCP.
func ProtocolOf(appProtocol, portName, transport string) Protocol {
	switch transport {
	case "", "TCP":
	default:
		return UDP // and SCTP: nothing that is captured
	}
	if appProtocol != "" {
		return protocols[strings.ToLower(appProtocol)]
	}
	portName = strings.ToLower(portName)
	if portName == "grpc-web" || strings.HasPrefix(portName, "grpc-web-") {
		return protocols["grpc-web"]
	}
	prefix, _, _ := strings.Cut(portName, "-")
	return protocols[prefix]
}

// agree is what two services say together about a port of one workload. It does not
// depend on their order.
func agree(a, b Protocol) Protocol {
	switch {
	case a == b:
		return a
	case a == ServerFirst || b == ServerFirst:
		return ServerFirst // whatever the other says, waiting for the client could be for ever
	case a == GRPC && b == HTTP2 || a == HTTP2 && b == GRPC:
		return HTTP2
	}
	return Unknown
}
