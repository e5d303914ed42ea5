package bootconfig

import "time"

// A Source says where a value came from.
type Source string

// The sources of a value, in order of preference.
const (
	FromProvider Source = "provider"
	FromLastGood Source = "last good" // stored on disk by an earlier process
	FromFile     Source = "file"
	FromEmbedded Source = "embedded"
	FromDefault  Source = "default"
)

// A Snapshot is a value with its state at one moment.
type Snapshot[T any] struct {
	Value T
	// Source becomes FromProvider once the provider has confirmed a value of the last good document.
	Source Source
	// From is the provider's name or the path of the file; "" for the other sources.
	From string
	// Version is the provider's version of a document that came from it.
	Version string
	// Generation is 1 for the value that the process started with, and grows by one with each
	// change.
	Generation uint64
	// Since is the time at which the value came into use in this process.
	Since time.Time
	// Confirmed is the time at which the provider last said that the document is current. Before the
	// first answer, it is the time at which an earlier process fetched it. Zero if no provider supplied
	// it.
	Confirmed time.Time
	// Failures counts the fetches that failed since the provider's last answer.
	Failures int
	// Err is the present problem: why the last fetch failed, why the provider's current document is not
	// in use, or why documents were skipped at the start. nil if the value is the provider's current
	// document.
	Err error
}

// Age returns the time since the provider last said that the document is current; known is false if it
// never did.
func (s Snapshot[T]) Age() (age time.Duration, known bool) {
	if s.Confirmed.IsZero() {
		return 0, false
	}
	return max(0, time.Since(s.Confirmed)), true // the clock of an earlier process may have been ahead
}
