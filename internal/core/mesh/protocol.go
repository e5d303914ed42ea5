package mesh

import "strings"

// protocols are the values by which a service's port declares its protocol: in appProtocol,
// or before the first dash of its name. Sources: Istio's "Protocol Selection", Kubernetes'
// standard application protocols (KEP-3726), and for which side speaks first the
// protocols' own specifications. Port numbers are never used.
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

// ProtocolOf returns the declared protocol of a service's port: by its appProtocol, else by
// its name. Transport is the Kubernetes protocol; empty is TCP.
func ProtocolOf(appProtocol, portName, transport string) Protocol {
	switch transport {
	case "", "TCP":
	default:
		return UDP // and SCTP: not captured
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
