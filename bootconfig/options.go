package bootconfig

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Options of [Open]. Only Provider is required; the zero value of a field means its default.
type Options[T any] struct {
	// Provider is the source of documents.
	Provider Provider

	// Default returns the value over which each document is decoded. If there is no document to start with, the
	// program starts with this value. Each call must return a new value, which shares no maps or pointers with
	// earlier ones. Default: the zero T.
	Default func() T
	// Embedded is a document in the program, usually from go:embed. Open fails if it does not decode or is
	// invalid.
	Embedded []byte
	// File is the path of a document to start with. A missing or bad file is skipped.
	File string
	// LastGood is the path at which the last good document is stored. Its folder must be writable and must
	// outlive the process. "": it is not stored. Several processes may share the file. Its mode is 0600, because
	// documents may contain secrets.
	LastGood string
	// Schema names the format that the program understands; last good documents with another schema are
	// not read. At most 64 letters, digits, dots, underscores and dashes.
	Schema string

	// Decode decodes a document into a new value of Default. Default: JSON[T].
	Decode func(data []byte, into *T) error
	// Validate returns an error for a value that must not be used. It should depend only on the value,
	// because a rejected document is not checked again until it changes. Default: every value is valid.
	Validate func(T) error

	// Refresh is the mean time between fetches; each time is random, see the package comment. At
	// least a second, at most a day. Default: 1 minute.
	Refresh time.Duration
	// LongPoll is the longest time for which the provider may hold a fetch until the document changes; a change
	// is then in use within seconds. A provider that cannot hold a fetch is called every Refresh. At least a
	// second, at most ten minutes. Default: 0, no long poll.
	LongPoll time.Duration
	// Timeout limits one fetch, including decoding and validation, in addition to LongPoll. Default: 10
	// s.
	Timeout time.Duration
	// MaxSize is the maximum size of a document in bytes. Default: 1 MiB.
	MaxSize int64

	// OnError receives background errors: failed fetches, rejected documents, last good documents that
	// could not be read or written, and panics of functions of OnChange. It is called from one
	// goroutine. If it is slower than the errors, 64 are queued and further ones are dropped.
	// [Snapshot].Err contains the last error in any case.
	OnError func(error)
}

var schemaForm = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)

// complete returns the options with defaults, or an error that names every invalid option.
func (o Options[T]) complete() (Options[T], error) {
	o.Refresh = cmp.Or(o.Refresh, time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxSize = cmp.Or(o.MaxSize, 1<<20)
	if o.Default == nil {
		o.Default = func() (zero T) { return zero }
	}
	if o.Decode == nil {
		o.Decode = JSON[T]
	}
	if o.Validate == nil {
		o.Validate = func(T) error { return nil }
	}
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Provider == nil, "Provider is missing")
	refuse(o.Refresh < time.Second || o.Refresh > 24*time.Hour, "Refresh is %v; it must be from 1s to 24h", o.Refresh)
	refuse(o.LongPoll != 0 && (o.LongPoll < time.Second || o.LongPoll > 10*time.Minute), "LongPoll is %v; it must be 0, or from 1s to 10m", o.LongPoll)
	refuse(o.Timeout < 0 || o.Timeout > time.Hour, "Timeout is %v; it must be above 0 and at most 1h", o.Timeout)
	refuse(o.MaxSize < 0 || o.MaxSize > 1<<30, "MaxSize is %d; it must be above 0 and at most 1 GiB", o.MaxSize)
	refuse(!schemaForm.MatchString(o.Schema), "Schema is %q; it must be at most 64 letters, digits, dots, underscores and dashes", o.Schema)
	refuse(o.Schema != "" && o.LastGood == "", "Schema is %q without LastGood, and has no effect", o.Schema)
	refuse(o.LastGood != "" && isFolder(o.LastGood), "LastGood is %q; it must be the path of a file, and is a folder", o.LastGood)
	refuse(o.File != "" && isFolder(o.File), "File is %q; it must be the path of a file, and is a folder", o.File)
	refuse(o.File != "" && o.LastGood != "" && filepath.Clean(o.File) == filepath.Clean(o.LastGood), "File and LastGood are both %q; LastGood is written", o.File)
	if len(wrong) > 0 {
		return o, fmt.Errorf("options of bootconfig: %w", errors.Join(wrong...))
	}
	return o, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return strings.HasSuffix(path, string(filepath.Separator)) || err == nil && info.IsDir()
}

// value decodes and validates a document.
func (o Options[T]) value(data []byte) (T, error) {
	v, err := o.decode(data)
	if err != nil {
		return v, err
	}
	return v, o.validate(v)
}

func (o Options[T]) decode(data []byte) (v T, err error) {
	defer caught("Decode", &err)
	if int64(len(data)) > o.MaxSize {
		return v, tooLarge(o.MaxSize)
	}
	v = o.Default()
	return v, o.Decode(data, &v)
}

func (o Options[T]) validate(v T) (err error) {
	defer caught("Validate", &err)
	return o.Validate(v)
}
