//go:build linux

package iptables

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// maxDigested bounds the bytes of a table whose rules are in a digest: 1,000 rules.
const maxDigested = 512 << 10

// A LegacyWatch reads the tables of iptables-legacy in one network namespace through sockets that stay open,
// because the kernel reports no changes of these tables.
type LegacyWatch struct {
	fds  []int
	seed maphash.Seed
	kept []watchedTable
}

type watchedTable struct {
	fd, level int
	family    capture.Families
	name      string
}

// WatchLegacy opens the tables that exist in the network namespace of the calling thread; nil: there are none. It
// creates no table.
func WatchLegacy() (*LegacyWatch, error) {
	w := &LegacyWatch{seed: maphash.MakeSeed()}
	for _, family := range families {
		names, err := legacyTables(family)
		if err == nil && len(names) > 0 {
			var fd, level int
			if fd, level, err = legacySocket(family); err == nil {
				w.fds = append(w.fds, fd)
			}
			for _, name := range names {
				w.kept = append(w.kept, watchedTable{fd, level, family, name})
			}
		}
		if err != nil {
			w.Close()
			return nil, err
		}
	}
	if len(w.kept) == 0 {
		return nil, nil
	}
	return w, nil
}

// Close closes the sockets, which keep the network namespace alive.
func (w *LegacyWatch) Close() {
	for _, fd := range w.fds {
		unix.Close(fd)
	}
}

// Digest returns a hash of all tables without their counters, or an error if they are changing. Of a table with more
// than maxDigested bytes, it depends on the size only. The buffer grows as necessary, and can serve other watches.
func (w *LegacyWatch) Digest(buffer *[]byte) (uint64, error) {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, t := range w.kept {
		info, err := tableInfoOf(t.fd, t.level, t.name)
		if err != nil {
			return 0, err
		}
		h.Write(binary.NativeEndian.AppendUint64(nil, uint64(info.entries)<<32|uint64(info.size)))
		if info.size > maxDigested {
			continue
		}
		*buffer = slices.Grow((*buffer)[:0], headLen+int(info.size))[:headLen+int(info.size)]
		entries, err := readEntries(t.fd, t.level, info, *buffer)
		if err != nil {
			return 0, err
		}
		err = walk(entries, t.family, func(entry []byte, _, counters int) { clear(entry[counters : counters+16]) })
		if err != nil {
			return 0, err
		}
		h.Write(entries)
	}
	return h.Sum64(), nil
}
