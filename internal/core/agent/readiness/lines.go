package readiness

import (
	"strings"

	"outrider.dev/internal/core/agent/envoy"
)

// A news is the meaning of a line of Envoy's log for readiness.
type news uint8

const (
	nothing     news = iota
	initialized      // the workers start; the listeners are bound a moment later
	refused          // the stream to the control plane was refused, for the certificate, the token or the name
	broken           // the stream to the control plane ended for any other reason
	rejected         // Envoy rejected a piece of configuration
)

// refusals recognize a stream that was refused: by gRPC's status PERMISSION_DENIED or
// UNAUTHENTICATED, or by a TLS handshake that either side ended.
var refusals = []func(code, text string) bool{
	func(code, _ string) bool { return code == "7" || code == "16" },
	func(_, text string) bool { return strings.Contains(text, "TLS_error") },
}

// read parses a line of the log of Envoy 1.40. reason is the text of the control plane or of Envoy,
// without the constant parts of the line. Envoy does not promise these texts: if they change,
// polling still finds the same state, but with a poorer reason.
func read(l envoy.Line) (n news, reason string) {
	if strings.HasPrefix(l.Message, envoy.ReadyMessage) {
		return initialized, ""
	}
	if _, rest, ok := strings.Cut(l.Message, "gRPC config stream to "+envoy.ControlPlaneCluster+" closed"); ok {
		_, reason, _ = strings.Cut(rest, ": ") // after "closed", or "closed since 31s ago"
		code, text, _ := strings.Cut(reason, ", ")
		for _, refusal := range refusals {
			if refusal(code, text) {
				return refused, short(handshake(text))
			}
		}
		return broken, short(text)
	}
	if _, rest, ok := strings.Cut(l.Message, "gRPC config for type.googleapis.com/"); ok {
		if _, reason, ok = strings.Cut(rest, " rejected: "); ok {
			return rejected, short(reason)
		}
	}
	return nothing, ""
}

// handshake returns the TLS library's reason within Envoy's text, or the whole text if there is
// none.
func handshake(text string) string {
	_, tls, ok := strings.Cut(text, "TLS_error:|")
	if !ok {
		return text
	}
	tls, _, _ = strings.Cut(tls, ":TLS_error_end")
	_, tls, _ = strings.Cut(tls, ":") // drop the error number
	return strings.ReplaceAll(tls, "_", " ")
}

// reasonLimit bounds the length of a reason in bytes, since people read it.
const reasonLimit = 600

func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > reasonLimit {
		s = strings.ToValidUTF8(s[:reasonLimit], "") + "..."
	}
	return s
}
