package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/startup"
)

// An Entry is one line of a container's journal.
type Entry struct {
	Time        time.Time    `json:"time"`
	What        startup.What `json:"what"`
	Incarnation int          `json:"incarnation,omitempty"` // counts the command's starts in this sandbox
	Detail      string       `json:"detail,omitempty"`
}

const (
	journalFile  = "journal"
	journalLimit = 128 << 10 // a container that restarts for ever must not fill the pod's memory
)

// Note adds an entry to the container's journal, which explains afterwards what happened.
// An entry that cannot be written is lost: nothing depends on the journal. When the journal
// is full, it is renamed to journal.old and a new one is begun.
func (w *Writer) Note(what startup.What, incarnation int, detail string) {
	w.NoteAt(now(), what, incarnation, detail)
}

// NoteAt adds an entry with a given time.
func (w *Writer) NoteAt(at time.Time, what startup.What, incarnation int, detail string) {
	name := filepath.Join(w.place.Own, journalFile)
	b, err := json.Marshal(Entry{at, what, incarnation, detail})
	if err != nil {
		return
	}
	if info, err := os.Lstat(name); err == nil && info.Size() > journalLimit {
		_ = os.Rename(name, name+".old")
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Chmod(0o644) // whatever the umask
	_, _ = f.Write(append(b, '\n'))
}

// Journal returns the entries of a container's journal, the oldest first. The container can
// write anything there: lines that are not entries are skipped.
func Journal(dir, container string) ([]Entry, error) {
	var out []Entry
	for _, name := range []string{journalFile + ".old", journalFile} {
		f, err := openRegular(filepath.Join(dir, container, name), 2*journalLimit)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("reading the journal of %s: %w", container, err)
		}
		b, err := io.ReadAll(io.LimitReader(f, 2*journalLimit))
		f.Close()
		if err != nil {
			return out, fmt.Errorf("reading the journal of %s: %w", container, err)
		}
		for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
			var e Entry
			if json.Unmarshal(in.Bytes(), &e) == nil && e.What != "" {
				out = append(out, e)
			}
		}
	}
	return out, nil
}
