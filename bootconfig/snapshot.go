package bootconfig

import "time"

// A Source is the origin of a value.
type Source string

// The sources of a value, in order of preference.
const (
	FromProvider Source = "provider"
	FromLastGood Source = "last good" // stored on disk by an earlier process
	FromFile     Source = "file"
	FromEmbedded Source = "embedded"
	FromDefault  Source = "default"
)

// A Snapshot is the value in use at one moment, with its origin, age and errors.
type Snapshot[T any] struct {
	Value T
	// Source is the origin of the value. A value from the last good document becomes FromProvider once the
	// provider has confirmed that its version is current.
	Source Source
	// From is the provider's name or the path of the file; "" for the other sources.
	From string
	// Version is the provider's version of the document; "" if the document did not come from the provider.
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
	// Err is the current problem: the failure of the last fetch, the rejection of the provider's current
	// document, or the reasons why documents were skipped at the start. It is nil if the value is the provider's
	// current document.
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
