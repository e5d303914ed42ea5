package readiness

import (
	"strings"

	"outrider.dev/internal/core/agent/envoy"
)

// A news is what a line of Envoy's log means for readiness.
type news uint8

const (
	nothing     news = iota
	initialized      // the workers start: the listeners are bound a moment later
	refused          // the stream to the control plane: not with this certificate, token or name
	broken           // the stream to the control plane: any other reason
	rejected         // a piece of configuration
)

// refusals are how a broken stream shows that it was refused: gRPC's PERMISSION_DENIED
// and UNAUTHENTICATED, and a TLS handshake that either side ended.
var refusals = []func(code, text string) bool{
	func(code, _ string) bool { return code == "7" || code == "16" },
	func(_, text string) bool { return strings.Contains(text, "TLS_error") },
}

// read parses a line of Envoy 1.40. reason is the control plane's or Envoy's own, without what
// is the same in all such lines. The texts are no interface: without them polling finds the
// same state, with a poorer reason.
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

// handshake is the TLS library's reason within Envoy's text; the whole text if there is none.
func handshake(text string) string {
	_, tls, ok := strings.Cut(text, "TLS_error:|")
	if !ok {
		return text
	}
	tls, _, _ = strings.Cut(tls, ":TLS_error_end")
	_, tls, _ = strings.Cut(tls, ":") // a number
	return strings.ReplaceAll(tls, "_", " ")
}

// reasonLimit is how much of a reason is kept: an answer is read by a person.
const reasonLimit = 600

func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > reasonLimit {
		s = strings.ToValidUTF8(s[:reasonLimit], "") + "..."
	}
	return s
}
