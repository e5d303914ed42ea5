package identity

import "fmt"

// A Fault is the reason why a workload has no certificate, or no new one.
type Fault struct {
	Kind   Kind
	Reason string // a sentence, without secrets
}

// A Kind classifies a [Fault].
type Kind string

// The kinds of faults.
const (
	NoToken     Kind = "no token"    // no token exists yet
	NoRoots     Kind = "no roots"    // no trusted roots are known yet
	Unreachable Kind = "unreachable" // no answer, or not in time
	Untrusted   Kind = "untrusted"   // the server is not the control plane: its certificate is wrong
	Rejected    Kind = "refused"     // the control plane refuses the request
	Broken      Kind = "failed"      // the answer cannot be used
)

func (f *Fault) Error() string { return f.Reason }

func fault(kind Kind, format string, a ...any) *Fault {
	return &Fault{Kind: kind, Reason: fmt.Sprintf(format, a...)}
}
