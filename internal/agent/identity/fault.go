package identity

import "fmt"

// A Fault is what stands between a workload and its certificate.
type Fault struct {
	Kind   Kind
	Reason string // a sentence, without secrets
	Err    error  // the cause, if there is one
}

// Kind of a [Fault].
type Kind string

// The kinds.
const (
	NoToken     Kind = "no token"    // there is none yet
	NoRoots     Kind = "no roots"    // no trusted roots are known yet
	Unreachable Kind = "unreachable" // no answer, or not in time
	Untrusted   Kind = "untrusted"   // the server is not the control plane: its certificate is wrong
	Rejected    Kind = "refused"     // the control plane says no
	Broken      Kind = "failed"      // it answers, and the answer is of no use
)

func (f *Fault) Error() string { return f.Reason }

func (f *Fault) Unwrap() error { return f.Err }

func fault(kind Kind, cause error, format string, a ...any) *Fault {
	return &Fault{Kind: kind, Reason: fmt.Sprintf(format, a...), Err: cause}
}
