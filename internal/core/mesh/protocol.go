package mesh

import "strings"

// protocols maps declared values to protocols. A service's port declares a value in appProtocol, or in its
// name before the first dash. Sources: Istio's "Protocol Selection", Kubernetes' standard application
// protocols (KEP-3726), and the specifications of protocols in which the server sends first. Port numbers are
// never used. The name or appProtocol udp is none of them: only the port's protocol in Kubernetes makes it one of UDP.
var protocols = map[string]Protocol{
	"http":     HTTP,
	"http1":    HTTP,
	"grpc-web": HTTP, // gRPC in the bodies of HTTP/1.1 requests
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

	"kubernetes.io/h2c": HTTP2,
	"kubernetes.io/ws":  HTTP,
	"kubernetes.io/wss": TLS,
}

// ProtocolOf returns the protocol that a service's port declares: by its appProtocol or, if that is empty, by
// its name. Transport is the port's protocol in Kubernetes; empty means TCP.
func ProtocolOf(appProtocol, portName, transport string) Protocol {
	switch Transport(transport) {
	case OverUDP:
		return UDP
	case OverSCTP:
		return SCTP
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
