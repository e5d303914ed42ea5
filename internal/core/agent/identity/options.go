package identity

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"
)

// Options configure a [Keeper]. The zero value of a field means its default.
type Options struct {
	Identity ID     // of this workload; not needed with Provided
	Client   Client // of the control plane

	// Dir stores Envoy's certificate and roots for the next agent of this pod. It should be in
	// memory, since it contains the key.
	Dir string
	// OutputDir, if set, receives certificate, key and roots as PEM files with Istio's names, for other
	// programs (OUTPUT_CERTS). The three files are not replaced at the same moment.
	OutputDir string
	GRPC      GRPCNode // for the gRPC bootstrap file in OutputDir

	Key  KeyKind       // default P256
	Life time.Duration // lifetime to request, SECRET_TTL; default: the control plane's default

	// GraceRatio is the share of its lifetime that a certificate has left when the next one is
	// requested, and GraceJitter the largest deviation in both directions: Istio's
	// SECRET_GRACE_PERIOD_RATIO and its jitter; default 0.5 and 0.
	GraceRatio, GraceJitter float64

	Backoff Backoff
	Timeout time.Duration // of one request; default 10s

	// Provided names certificate files that another program writes and renews. The Keeper then requests none
	// (FILE_MOUNTED_CERTS).
	Provided Provided

	// OnState is called with each new state, in order. It must not block.
	OnState func(State)

	// OnCertificate and OnRoots give Envoy its certificate and its trusted roots, as PEM.
	// [Keeper.Prepare] calls them if a certificate is stored; later they are called for each new
	// one, OnRoots first. They must not block.
	OnCertificate func(chain, key []byte)
	OnRoots       func(roots []byte)
}

// Provided names PEM files that another program writes.
type Provided struct{ Chain, Key, Roots string }

// A Backoff sets the waits after failed requests: first Base, then twice as long each time, up to
// Max. Each wait varies by at most a quarter, so that the pods of a node do not send their requests
// at the same time. Default 100ms and 10s.
type Backoff struct{ Base, Max time.Duration }

// pause returns the wait after this number of consecutive failures; chance is in [0, 1).
func (b Backoff) pause(failures int, chance float64) time.Duration {
	p := b.Base
	for range failures - 1 {
		if p *= 2; p >= b.Max {
			p = b.Max
			break
		}
	}
	return min(time.Duration(float64(p)*(0.75+chance/2)), b.Max)
}

func (o Options) withDefaults() Options {
	o.Key = cmp.Or(o.Key, P256)
	o.GraceRatio = cmp.Or(o.GraceRatio, 0.5)
	o.Backoff.Base = cmp.Or(o.Backoff.Base, 100*time.Millisecond)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.OnCertificate == nil {
		o.OnCertificate = func([]byte, []byte) {}
	}
	if o.OnState == nil {
		o.OnState = func(State) {}
	}
	if o.OnRoots == nil {
		o.OnRoots = func([]byte) {}
	}
	return o
}

// An OptionError reports an option with an unusable value.
type OptionError struct {
	Option  string // for example "OutputDir"
	Problem string // the problem, and what would be valid
}

func (e *OptionError) Error() string { return "option " + e.Option + ": " + e.Problem }

func wrong(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// check finds errors that package config cannot detect.
func (o Options) check() error {
	if o.OutputDir != "" && filepath.Clean(o.OutputDir) == filepath.Clean(o.Dir) {
		return wrong("OutputDir", "%s is Dir; use another", o.OutputDir)
	}
	if o.Provided != (Provided{}) {
		return nil
	}
	if err := o.Identity.Check(); err != nil {
		return wrong("Identity", "%v", err)
	}
	return nil
}
