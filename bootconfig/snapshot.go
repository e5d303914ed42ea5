package bootconfig

import "time"

// A Source is where a value came from.
type Source string

// The sources of a value, in the order in which they are preferred.
const (
	FromProvider Source = "provider"
	FromLastGood Source = "last good" // of an earlier process, from disk
	FromFile     Source = "file"
	FromEmbedded Source = "embedded"
	FromDefault  Source = "default"
)

// A Snapshot is a value, and what is known of it at one moment.
type Snapshot[T any] struct {
	Value T
	// Source is FromProvider as soon as the provider has confirmed a value of the last good
	// document.
	Source Source
	// From is the provider's name or the path of the file; "" for the other sources.
	From string
	// Version is the provider's, for documents that came from it.
	Version string
	// Generation is 1 for the value that the process started with, and grows by one with each
	// change.
	Generation uint64
	// Since is when the value came into use in this process.
	Since time.Time
	// Confirmed is when the provider last said that the document is current; before the first
	// answer, when an earlier process fetched it. Zero if it is of no provider.
	Confirmed time.Time
	// Failures counts the fetches that failed since the provider's last answer.
	Failures int
	// Err says what is wrong now: why the last fetch failed, why the provider's current document
	// is not in use, or why documents were passed over at the start. nil when the value is the
	// provider's current document.
	Err error
}

// Age returns the time since the provider last said that the document is current, and whether
// it ever did.
func (s Snapshot[T]) Age() (age time.Duration, known bool) {
	if s.Confirmed.IsZero() {
		return 0, false
	}
	return max(0, time.Since(s.Confirmed)), true // the clock of an earlier process may have been ahead
}
