package bootconfig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// A store keeps the last good document on disk. The file contains a line of JSON, the header, and then
// the document as it was fetched, so that a person can read it.
type store struct {
	path, schema string
	maxSize      int64

	next atomic.Pointer[record] // the record to write next
	wake chan struct{}

	step func(string) // for tests: called between the steps of a write
}

const (
	storeFormat = 1
	maxHeader   = 8 << 10
)

// A record is the content of a store's file.
type record struct {
	header
	document []byte
}

type header struct {
	Format  int       `json:"format"`
	Schema  string    `json:"schema,omitempty"`
	From    string    `json:"from"`
	Version string    `json:"version,omitempty"`
	Fetched time.Time `json:"fetched"`
	Size    int       `json:"size"`
	SHA256  string    `json:"sha256"` // of the document
}

// An otherError is the error for a file that is intact, but has another schema or format.
type otherError struct{ what string }

func (e *otherError) Error() string { return e.what }

func newStore(path, schema string, maxSize int64) *store {
	return &store{path: path, schema: schema, maxSize: maxSize, wake: make(chan struct{}, 1), step: func(string) {}}
}

// load returns the record with this schema from the path, or else from the file ".other" that was set aside. If
// neither has one, it returns the error of reading the path.
func (s *store) load() (record, error) {
	r, err := s.read(s.path)
	if other := (*otherError)(nil); errors.As(err, &other) {
		if aside, err := s.read(s.path + ".other"); err == nil {
			return aside, nil
		}
	}
	return r, err
}

func (s *store) read(path string) (record, error) {
	data, err := readFile(path, s.maxSize+maxHeader)
	if err != nil {
		return record{}, err
	}
	return parseRecord(data, s.schema)
}

// parseRecord parses a store's file. The error is an *otherError if the schema differs.
func parseRecord(data []byte, schema string) (record, error) {
	line, document, found := bytes.Cut(data, []byte("\n"))
	if !found || len(line) > maxHeader {
		return record{}, errors.New("it has no header")
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return record{}, fmt.Errorf("its header: %w", err)
	}
	sum := sha256.Sum256(document)
	switch {
	case h.Format > storeFormat:
		return record{}, &otherError{fmt.Sprintf("it is of format %d; this program reads format %d", h.Format, storeFormat)}
	case h.Format != storeFormat:
		return record{}, fmt.Errorf("its header has format %d; want %d", h.Format, storeFormat)
	case h.Size != len(document):
		return record{}, fmt.Errorf("it has %d bytes; its header says %d", len(document), h.Size)
	case h.SHA256 != hex.EncodeToString(sum[:]):
		return record{}, errors.New("it was changed: the checksum is another")
	case h.Schema != schema:
		return record{}, &otherError{fmt.Sprintf("it is of schema %.64q; this program reads schema %q", h.Schema, schema)}
	}
	return record{h, document}, nil
}

// keep passes a record to [store.run], which writes it. The record replaces one that is not written yet.
func (s *store) keep(r record) {
	s.next.Store(&r)
	signal(s.wake)
}

// run writes the records that [store.keep] passes to it. When ctx ends, it writes the last one and returns. It
// reports a failed write, and retries it when wake receives a signal.
func (s *store) run(ctx context.Context, report func(error)) {
	for {
		ended := false
		select {
		case <-s.wake:
		case <-ctx.Done():
			ended = true
		}
		if r := s.next.Load(); r != nil {
			if err := s.save(*r); err != nil {
				report(fmt.Errorf("keeping the last good document: %w", err))
			} else {
				s.next.CompareAndSwap(r, nil)
			}
		}
		if ended {
			return
		}
	}
}

// save writes a record so that path always contains the previous file or the new one.
func (s *store) save(r record) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	data, err := encodeRecord(r, s.schema)
	if err != nil {
		return err
	}
	temp, err := s.writeTemp(data)
	if temp != nil {
		defer temp.Close()           // also unlocks it
		defer os.Remove(temp.Name()) // this fails, without harm, if the file was renamed
	}
	if err != nil {
		return err
	}
	s.step("written")
	if newer := s.setAside(r.Fetched); newer {
		return nil
	}
	s.step("set aside")
	if !renamesOpenFiles {
		temp.Close()
	}
	if err := os.Rename(temp.Name(), s.path); err != nil {
		return err
	}
	s.step("renamed")
	return syncFolder(filepath.Dir(s.path))
}

func encodeRecord(r record, schema string) ([]byte, error) {
	sum := sha256.Sum256(r.document)
	r.Format, r.Schema, r.Size, r.SHA256 = storeFormat, schema, len(r.document), hex.EncodeToString(sum[:])
	line, err := json.Marshal(r.header)
	if err != nil {
		return nil, err
	}
	if len(line) > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes, more than %d: the version or the name of the provider is too long", len(line), maxHeader)
	}
	return append(append(line, '\n'), r.document...), nil
}

// writeTemp writes a temporary file beside the path, and locks it. So [store.clean] can recognise the file of a
// process that has ended, which is not locked.
func (s *store) writeTemp(data []byte) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(s.path), s.tempPrefix()+"*") // mode 0600
	if err != nil {
		return nil, err
	}
	if _, err := lock(f); err != nil {
		return f, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	s.step("created")
	if _, err := f.Write(data[:len(data)/2]); err != nil {
		return f, err
	}
	s.step("half written")
	if _, err := f.Write(data[len(data)/2:]); err != nil {
		return f, err
	}
	return f, f.Sync()
}

func (s *store) tempPrefix() string { return "." + filepath.Base(s.path) + ".tmp-" }

// setAside keeps the present file under another name if it is corrupt or has another schema. It reports whether
// the present file is newer, i.e. another process has stored a document that it fetched later; that document must
// stay.
func (s *store) setAside(fetched time.Time) (newer bool) {
	old, err := s.read(s.path)
	if err == nil {
		return old.Fetched.After(fetched) && !old.Fetched.After(time.Now())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	aside := s.path + ".corrupt"
	if other := (*otherError)(nil); errors.As(err, &other) {
		aside = s.path + ".other"
	}
	// Errors are ignored, because the new file must be written even if the old one cannot be kept.
	_ = os.Remove(aside)
	_ = os.Link(s.path, aside)
	return false
}

// clean removes temporary files of processes that ended while writing.
func (s *store) clean() error {
	names, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(s.path)), escapeGlob(s.tempPrefix())+"*"))
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if !stale(name) {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("removing what an earlier process left: %w", err))
		}
	}
	return errors.Join(failed...)
}

func stale(name string) bool {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	locked, err := lock(f)
	return locked && err == nil
}

var globMeta = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func escapeGlob(s string) string { return globMeta.Replace(s) }

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe may block
		return nil, fmt.Errorf("reading %s: it must be a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("reading %s: %w", path, tooLarge(limit))
	}
	return data, nil
}
