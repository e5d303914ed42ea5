package relay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/wire"
)

const (
	// maxStore bounds what is kept, in bytes of the file, which is compressed. The pod's volume in
	// memory has 32 MiB, and two files while one is rewritten.
	maxStore = 12 << 20
	// maxIndex bounds the index in memory: 80,000 resources with names of 60 bytes.
	maxIndex   = 16 << 20
	indexEntry = 128 // bytes, besides its strings
	// maxGarbage is how much a file may have besides that before it is rewritten.
	maxGarbage = 1 << 20
	// recordSize is about how large a message is before compression. A larger one compresses
	// little better, and a read of one resource decompresses it all.
	recordSize = 64 << 10
	maxFile    = maxStore + maxGarbage
	// maxMessage bounds the message of a record: a large resource, or the names of all that are
	// removed.
	maxMessage = maxResponse + recordSize
	// maxMessages bounds those of a file that is opened: 12 bytes of configuration take one of the
	// file, and DEFLATE makes up to a thousand of one.
	maxMessages = 256 << 20

	storeFormat = "outrider relay 2\n"
	recordHead  = 8 // length and checksum
)

var errFull = fmt.Errorf("it takes more than %d bytes of a file, or %d of memory", maxStore, maxIndex)

// A store keeps the resources that Envoy has accepted, in a file: an Envoy that starts while the
// control plane is away gets them back. In memory it has an index only.
//
// The file is a format, and records: length and CRC-32C of a message, and the message, compressed
// by DEFLATE (RFC 1951). A record that an agent did not finish is cut off by the next one. What
// the file system refuses ends the store, and nothing else: it then keeps nothing.
type store struct {
	path, key string
	failed    func(error) // called when the store ends

	mu    sync.Mutex
	file  *os.File // nil: nothing is kept
	size  int64    // of the file
	live  int64    // bytes of the records that count
	used  int64    // memory of the index
	types map[string]map[string]place
	away  []byte // wire.Away

	last struct { // the record that was read last
		file    *os.File
		at      int64
		message []byte
	}
}

// A place is where a resource is in the file.
type place struct {
	version      string
	at           int64 // of the compressed message
	packed       int32 // its length
	offset, size int32 // of the message Resource in the decompressed one
	cost         int32 // about how many bytes of the file it takes
}

// The message of a record. It has resources that are put, or names that are removed, or neither.
//
//	message Record { string type = 1; repeated Resource put = 2; repeated string remove = 3; Away away = 4; string key = 5; }
const fieldType, fieldPut, fieldRemove, fieldAway, fieldKey = 1, 2, 3, 4, 5

// openStore opens the file at path, or begins a new one: also if the file is of another key.
// Without a path, or a file system that takes the file, nothing is kept.
func openStore(path, key string, failed func(error)) *store {
	s := &store{path: path, key: key, failed: failed}
	if s.open() != nil {
		s.begin()
	}
	return s
}

// begin starts an empty file. What is known of a control plane that is away stays.
func (s *store) begin() {
	s.drop()
	if s.path == "" {
		return
	}
	if err := s.replace(nil); err != nil {
		s.end(err)
	}
}

// replace makes a file of what is in the index and in the current file, and of records more.
// The current one is complete until the new one is.
func (s *store) replace(records []byte) error {
	old, types := s.file, s.types
	if old != nil {
		defer old.Close()
	}
	os.Remove(s.path + ".new") // of an agent that was killed
	file, err := os.OpenFile(s.path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	s.file = nil
	s.drop()
	if err == nil {
		s.file = file
		err = s.copy(old, types)
	}
	if err == nil {
		err = s.append(records)
	}
	if err == nil {
		err = os.Rename(s.path+".new", s.path)
	}
	return err
}

// copy writes what is at the beginning of each file, and resources of the old one.
func (s *store) copy(old *os.File, types map[string]map[string]place) error {
	start := append([]byte(storeFormat), pack(wire.AppendField(nil, fieldKey, s.key))...)
	if s.away != nil {
		start = append(start, pack(wire.AppendField(nil, fieldAway, s.away))...)
	}
	if err := s.append(start); err != nil {
		return err
	}
	s.live = s.size
	for _, typeURL := range slices.Sorted(maps.Keys(types)) {
		names := types[typeURL]
		var failed error
		for p := range partsOf(typeURL, func(yield func(resource) bool) {
			for _, name := range sorted(names, maps.Keys(names)) {
				r, err := s.load(old, names[name])
				if failed = err; err != nil || !yield(r) {
					return
				}
			}
		}) {
			if err := s.append(p.record); err != nil {
				return err
			}
			s.index(typeURL, p, s.size)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

func (s *store) drop() {
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.size, s.live, s.used, s.types = nil, 0, 0, 0, map[string]map[string]place{}
	s.last.file, s.last.message = nil, nil
}

// giveUp ends the store.
func (s *store) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.end(err)
	}
}

// end gives the file up.
func (s *store) end(err error) {
	s.drop()
	os.Remove(s.path + ".new")
	os.Remove(s.path)
	s.failed(err)
}

// open reads the file.
func (s *store) open() error {
	s.drop()
	// Not through a link. With O_RDWR a pipe is opened at once.
	file, err := os.OpenFile(s.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	s.file = file
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < int64(len(storeFormat)) || info.Size() > maxFile {
		return errors.New("not a file of this format")
	}
	raw := make([]byte, info.Size())
	if _, err := io.ReadFull(file, raw); err != nil {
		return err
	}
	if string(raw[:len(storeFormat)]) != storeFormat {
		return errors.New("not a file of this format")
	}
	s.size = int64(len(storeFormat))
	s.live = s.size
	room := maxMessages
	for rest := raw[s.size:]; len(rest) >= recordHead; rest = raw[s.size:] {
		n := int64(binary.LittleEndian.Uint32(rest))
		if n > int64(len(rest)-recordHead) {
			break
		}
		record := rest[:recordHead+n]
		if crc32.Checksum(record[recordHead:], castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		first := s.size == int64(len(storeFormat))
		s.size += recordHead + n
		message, err := unpack(record[recordHead:], min(room, maxMessage))
		if err == nil {
			err = s.replay(record, message, first)
		}
		if room -= len(message); err != nil {
			return err
		}
	}
	if s.size == int64(len(storeFormat)) {
		return errors.New("a file without a key")
	}
	if err := file.Truncate(s.size); err != nil {
		return err
	}
	_, err = file.Seek(s.size, io.SeekStart)
	return err
}

// replay applies a record that ends at s.size.
func (s *store) replay(record, message []byte, first bool) error {
	typeURL, keyed := "", false
	var p part
	err := wire.Fields(message, func(f wire.Field) error {
		switch f.Number {
		case fieldType:
			typeURL = string(f.Bytes)
		case fieldPut:
			r, err := parseResource(f.Bytes)
			p.add(r, cap(message)-cap(f.Bytes)) // one is a part of the other
			return err
		case fieldRemove:
			s.unindex(typeURL, string(f.Bytes))
		case fieldAway:
			s.away = slices.Clone(f.Bytes)
		case fieldKey:
			keyed = string(f.Bytes) == s.key
		}
		return nil
	})
	s.index(typeURL, p.with(record, message), s.size)
	switch {
	case err == nil && first && !keyed:
		err = errors.New("a file of another proxy")
	case err == nil && s.used > maxIndex:
		err = errFull
	}
	return err
}

// index notes where the resources of a part are, whose record ends at an offset of the file.
func (s *store) index(typeURL string, p part, end int64) {
	for i, r := range p.resources {
		s.unindex(typeURL, r.name)
		names := s.types[typeURL]
		if names == nil {
			names = map[string]place{}
			s.types[typeURL] = names
		}
		at := p.places[i]
		at.packed = int32(len(p.record) - recordHead)
		at.at = end - int64(at.packed)
		names[r.name] = at
		s.live += int64(at.cost)
		s.used += r.memory()
	}
}

func (s *store) unindex(typeURL, name string) (was bool) {
	p, was := s.types[typeURL][name]
	if was {
		if delete(s.types[typeURL], name); len(s.types[typeURL]) == 0 {
			delete(s.types, typeURL)
		}
		s.live -= int64(p.cost)
		s.used -= resource{name: name, version: p.version}.memory()
	}
	return was
}

// memory is about how many bytes the index has of a resource.
func (r resource) memory() int64 { return int64(indexEntry + len(r.name) + len(r.version)) }

// append writes records. The costs do not bound the file: they divide a record by size, of which
// one resource may take all.
func (s *store) append(records []byte) error {
	if s.size+int64(len(records)) > maxFile {
		return errFull
	}
	n, err := s.file.Write(records)
	s.size += int64(n)
	return err
}

// write writes records of which a number of bytes will count.
func (s *store) write(records []byte, live int) error {
	if s.size+int64(len(records)) <= min(2*(s.live+int64(live)), maxStore)+maxGarbage {
		return s.append(records)
	}
	if live == 0 {
		records = nil // the new file needs no removals, and has s.away
	}
	return s.replace(records)
}

// load returns a resource of a file.
func (s *store) load(file *os.File, p place) (resource, error) {
	if s.last.file != file || s.last.at != p.at {
		packed := make([]byte, p.packed)
		if _, err := file.ReadAt(packed, p.at); err != nil {
			return resource{}, err
		}
		message, err := unpack(packed, maxMessage)
		if err != nil {
			return resource{}, err
		}
		s.last.file, s.last.at, s.last.message = file, p.at, message
	}
	raw := s.last.message[p.offset:][:p.size]
	if p.size >= recordSize { // it has the record for itself
		s.last.file, s.last.message = nil, nil
	} else {
		raw = slices.Clone(raw) // which does not hold the other ones
	}
	return parseResource(raw)
}

// accept keeps what Envoy has accepted. With fresh it is the first of its type on a stream:
// then everything that Envoy did not have before it is of an earlier Envoy, and dropped.
func (s *store) accept(p response, fresh bool, initial map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh && len(initial) == 0 && p.typeURL == clusterType && s.file == nil {
		s.begin() // what was too much may not be any more
	}
	if fresh {
		for name, have := range s.types[p.typeURL] { // any order: all are removed
			if initial[name] != have.version {
				p.removed = append(p.removed, name)
			}
		}
	}
	s.change(p)
}

// forget removes a name that Envoy does not subscribe to any more.
func (s *store) forget(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(response{typeURL: typeURL, removed: names})
}

// change applies a response: the removals and the first part at once.
func (s *store) change(p response) {
	if s.file == nil {
		return
	}
	p.removed = slices.DeleteFunc(p.removed, func(name string) bool { return !s.unindex(p.typeURL, name) })
	removed := removal(p.typeURL, p.removed)
	for part := range p.parts() {
		for _, r := range part.resources {
			s.unindex(p.typeURL, r.name)
		}
		err := errFull
		if s.live+int64(len(part.record)) <= maxStore {
			err = s.write(append(removed, part.record...), len(part.record))
		}
		if err == nil {
			if s.index(p.typeURL, part, s.size); s.used > maxIndex {
				err = errFull
			}
		}
		if err != nil {
			s.end(err)
			return
		}
		removed = nil
	}
	if removed == nil {
		return
	}
	if err := s.write(removed, 0); err != nil {
		s.end(err)
	}
}

// setAway keeps what is used while the control plane is away.
func (s *store) setAway(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = raw
	if s.file == nil {
		return
	}
	if err := s.write(pack(wire.AppendField(nil, fieldAway, raw)), 0); err != nil {
		s.end(err)
	}
}

// complete reports whether an Envoy can start with what is kept.
func (s *store) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.types[clusterType]) > 0 && len(s.types[listenerType]) > 0
}

// names returns all that are kept of a type, or else some names, in the order in which get is fast.
func (s *store) names(typeURL string, all bool, some []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Values(some)
	if all {
		names = maps.Keys(s.types[typeURL])
	}
	return sorted(s.types[typeURL], names)
}

func sorted(places map[string]place, names iter.Seq[string]) []string {
	return slices.SortedFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(places[a].at, places[b].at), cmp.Compare(places[a].offset, places[b].offset))
	})
}

// get returns a resource.
func (s *store) get(typeURL, name string) (resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.types[typeURL][name]
	if !ok || s.file == nil {
		return resource{}, false
	}
	r, err := s.load(s.file, p)
	if err != nil {
		s.end(err)
	}
	return r, err == nil
}

// count returns how many resources are kept, and how many bytes the file has.
func (s *store) count() (resources int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, names := range s.types { // any order: a sum
		resources += len(names)
	}
	return resources, s.size
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}
