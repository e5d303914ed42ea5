package envoy

import "strings"

// A Cause says why Envoy ended.
type Cause struct {
	Reason string // one line; empty if the log does not say

	// Final: the same bootstrap and arguments fail again.
	Final bool
}

// Explain looks in the last lines of Envoy's standard error for why it ended.
func Explain(lines []string) Cause {
	for _, raw := range lines {
		l := ParseLine([]byte(raw))
		if reason, ok := strings.CutPrefix(l.Message, "PARSE ERROR: "); ok {
			return Cause{Reason: "arguments rejected: " + tidy(reason), Final: true}
		}
		if l.Level < LevelCritical || l.Component == "backtrace" && !strings.HasPrefix(l.Message, "Caught ") {
			continue
		}
		// "error `why` initializing config 'where'": Envoy writes it once, with status 1.
		reason, ok := strings.CutPrefix(l.Message, "error `")
		if !ok {
			return Cause{Reason: tidy(l.Message)}
		}
		if i := strings.LastIndex(reason, "` initializing config"); i >= 0 {
			reason = reason[:i]
		}
		reason = tidy(reason)
		if strings.HasPrefix(reason, "cannot bind") {
			return Cause{Reason: reason} // the other process may release the port
		}
		return Cause{Reason: "configuration rejected: " + reason, Final: true}
	}
	return Cause{}
}

// tidy undoes the random spaces that protobuf puts into its messages so that programs do not
// compares them.
func tidy(s string) string { return strings.Join(strings.Fields(s), " ") }
