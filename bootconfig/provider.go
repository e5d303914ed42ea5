package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Provider fetches documents from where they are kept. It is called by one goroutine at a time.
type Provider interface {
	// Fetch returns the current document, or [ErrUnchanged] if that is the one of r.Version. It
	// ends with ctx, which has a deadline. An error of Fetch leaves the value in use as it is.
	Fetch(ctx context.Context, r Request) (Document, error)

	// String names the provider in errors and in [Snapshot].From, for example by its address. It is
	// stored with the last good document: a version is only sent to the provider of that name. It
	// contains no secrets.
	String() string
}

// A Request has the arguments of a call of [Provider.Fetch].
type Request struct {
	// Version of the last document that the provider returned, whether it was good or not; ""
	// before the first.
	Version string
	// Wait is how long Fetch may hold while Version is still current. A provider that cannot
	// hold answers at once. 0: every provider answers at once.
	Wait time.Duration
	// MaxSize is the size in bytes above which a document will be refused: no more of it needs
	// to be read.
	MaxSize int64
}

// A Document comes from a [Provider], and is not decoded yet.
type Document struct {
	// Version is an ETag, an index or a hash, as the provider has it. "": the provider has none.
	Version string
	Data    []byte
}

// ErrUnchanged is returned by [Provider].Fetch when the document is the one of [Request].Version.
var ErrUnchanged = errors.New("bootconfig: the document is unchanged")

// ErrTooLarge is in the error of a document over [Options].MaxSize.
var ErrTooLarge = errors.New("the document is too large")

// A RetryAfterError is returned by a provider whose source says when it is to be called again.
type RetryAfterError struct {
	After time.Duration // more than an hour counts as an hour
	Err   error
}

func (e *RetryAfterError) Error() string { return fmt.Sprintf("%v (retry after %v)", e.Err, e.After) }
func (e *RetryAfterError) Unwrap() error { return e.Err }

// A RejectedError says why a document that was fetched is not in use. The value in use stays.
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

// tooLarge is the error of a document of more than limit bytes.
func tooLarge(limit int64) error { return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit) }

// caught makes an error of a panic of the function that is named. Its value may contain anything,
// so only that of an error or a string is shown.
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
