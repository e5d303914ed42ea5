//go:build linux

package iptables

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// maxDigested bounds the bytes of a table whose rules are in a digest: 1,000 rules.
const maxDigested = 512 << 10

// Unreported reads, in one network namespace, what captures by iptables depend on and of which the kernel reports no
// changes: the tables of iptables-legacy, and our sets of ipset. It reads by files and sockets that stay open.
type Unreported struct {
	names  []*os.File // list the legacy tables of a family; nil: the kernel's module is not loaded
	fds    []int
	seed   maphash.Seed
	tables []watchedTable
	sets   ipset.Digester
}

type watchedTable struct {
	fd, level int
	family    capture.Families
	name      string
}

// OpenUnreported opens what exists in the network namespace of the calling thread. It creates no table.
func OpenUnreported() (*Unreported, error) {
	w := &Unreported{seed: maphash.MakeSeed()}
	var errs []error
	for _, family := range families {
		errs = append(errs, w.openTables(family))
	}
	var err error
	w.sets, err = ipset.OpenDigester()
	if err := errors.Join(append(errs, err)...); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Unreported) openTables(family capture.Families) error {
	file, err := os.Open(legacyNames[family])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.names = append(w.names, file)
	names, err := legacyTables(family)
	if err != nil || len(names) == 0 {
		return err
	}
	fd, level, err := legacySocket(family)
	if err != nil {
		return err
	}
	w.fds = append(w.fds, fd)
	for _, name := range names {
		w.tables = append(w.tables, watchedTable{fd, level, family, name})
	}
	return nil
}

// Close closes the files and sockets, which keep the network namespace alive.
func (w *Unreported) Close() {
	for _, fd := range w.fds {
		unix.Close(fd)
	}
	for _, f := range w.names {
		f.Close() // nil is allowed
	}
	w.sets.Close()
}

// Digest returns a hash of all tables without their counters and of all sets, or an error if they are changing. Of a
// table with more than maxDigested bytes, it depends on the size only, and of a set whose number of entries is another one
// than at first, on that number. The buffer grows as necessary, and can serve others.
func (w *Unreported) Digest(buffer *[]byte) (uint64, error) {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for i, family := range families {
		if w.names[i] == nil { // another pod may have the module loaded
			_, err := os.Stat(legacyNames[family])
			h.WriteString(strconv.FormatBool(err == nil))
			continue
		}
		var names [256]byte
		n, err := unix.Pread(int(w.names[i].Fd()), names[:], 0)
		if err != nil {
			return 0, err
		}
		h.Write(names[:n])
	}
	for _, t := range w.tables {
		if err := t.digest(&h, buffer); err != nil {
			return 0, err
		}
	}
	if err := w.sets.Digest(&h); err != nil {
		return 0, err
	}
	return h.Sum64(), nil
}

func (t watchedTable) digest(h *maphash.Hash, buffer *[]byte) error {
	info, err := tableInfoOf(t.fd, t.level, t.name)
	if err != nil {
		return err
	}
	h.Write(binary.NativeEndian.AppendUint64(nil, uint64(info.entries)<<32|uint64(info.size)))
	if info.size > maxDigested {
		return nil
	}
	*buffer = slices.Grow((*buffer)[:0], headLen+int(info.size))[:headLen+int(info.size)]
	entries, err := readEntries(t.fd, t.level, info, *buffer)
	if err != nil {
		return err
	}
	err = walk(entries, t.family, func(entry []byte, _, counters int) { clear(entry[counters : counters+16]) })
	h.Write(entries)
	return err
}
