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
	refused          // the control plane refused the stream: PERMISSION_DENIED or UNAUTHENTICATED
	broken           // the stream to the control plane ended for any other reason
	rejected         // Envoy rejected a piece of configuration
)

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
		if code == "7" || code == "16" {
			return refused, short(text)
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

// reasonLimit bounds the length of a reason in bytes, since people read it.
const reasonLimit = 600

func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > reasonLimit {
		s = strings.ToValidUTF8(s[:reasonLimit], "") + "..."
	}
	return s
}
