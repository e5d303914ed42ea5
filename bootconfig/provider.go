package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Provider fetches documents from their source. It is called from one goroutine at a time.
type Provider interface {
	// Fetch returns the current document, or [ErrUnchanged] if its version is still r.Version. It must return
	// when ctx ends; ctx has a deadline. If Fetch returns an error, the value in use stays.
	Fetch(ctx context.Context, r Request) (Document, error)

	// String names the provider in errors and in [Snapshot].From, for example by its address. The name is stored
	// with the last good document, so that the document's version is sent only to the provider from which it
	// came. It must not contain secrets.
	String() string
}

// A Request holds the arguments of a call of [Provider.Fetch].
type Request struct {
	// Version is the version of the last document that the provider returned, even if that document was bad; ""
	// before the first document.
	Version string
	// Wait is the longest time for which Fetch may wait for a document with another version (long poll). A
	// provider that does not support this answers at once. 0: answer at once.
	Wait time.Duration
	// MaxSize is the size in bytes above which a document will be refused, so that no more of it needs
	// to be read.
	MaxSize int64
}

// A Document is a document of a [Provider] before decoding.
type Document struct {
	// Version is an opaque version that the provider assigns, such as an ETag, an index or a hash. "": the
	// provider has no versions.
	Version string
	Data    []byte
}

// ErrUnchanged is returned by [Provider].Fetch if the document still has [Request].Version.
var ErrUnchanged = errors.New("bootconfig: the document is unchanged")

// ErrTooLarge is wrapped by the error for a document larger than [Options].MaxSize.
var ErrTooLarge = errors.New("the document is too large")

// A RetryAfterError is returned by a provider whose server says when to call it again, for example by the
// header Retry-After.
type RetryAfterError struct {
	After time.Duration // more than an hour counts as an hour
	Err   error
}

func (e *RetryAfterError) Error() string { return fmt.Sprintf("%v (retry after %v)", e.Err, e.After) }
func (e *RetryAfterError) Unwrap() error { return e.Err }

// A RejectedError is the error for a document that was read but is not used, because it is too large, does not
// decode or is invalid. The value in use stays.
type RejectedError struct {
	From    string // the provider's name, or a path
	Version string
	Err     error
}

func (e *RejectedError) Error() string {
	version := ""
	if e.Version != "" {
		version = fmt.Sprintf(" (version %s)", e.Version)
	}
	return fmt.Sprintf("document of %s%s is rejected: %v", e.From, version, e.Err)
}
func (e *RejectedError) Unwrap() error { return e.Err }

// tooLarge returns the error for a document of more than limit bytes.
func tooLarge(limit int64) error { return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit) }

// caught turns a panic of the named function into an error. It shows the panic's value only if that is an error
// or a string, because other values may contain secrets.
func caught(what string, err *error) {
	switch p := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("%s panicked: %w", what, p)
	case string:
		*err = fmt.Errorf("%s panicked: %s", what, p)
	default:
		*err = fmt.Errorf("%s panicked with a %T", what, p)
	}
}
