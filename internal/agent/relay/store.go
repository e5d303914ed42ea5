package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/wire"
)

const (
	// maxStore bounds what is kept, in bytes. A service in use takes about 5 kB, 10,000 services
	// with full push 13 MB. The pod's volume in memory has 32 MiB, and two files while one is
	// rewritten.
	maxStore = 14 << 20
	// maxGarbage is how much a file may have besides that before it is rewritten.
	maxGarbage = 1 << 20

	storeFormat = "outrider relay 1\n"
	recordHead  = 8 // length and checksum
)

// A store keeps the resources that Envoy has accepted, in a file: an Envoy that starts while the
// control plane is away gets them back. In memory it has an index only.
//
// The file is a format, and records: length and CRC-32C of a message, and the message (see
// record). A record is all that changed at once; one that an agent did not finish is cut off by
// the next one. What the file system refuses ends the store, and nothing else: it then keeps
// nothing.
type store struct {
	path, key string
	failed    func(error) // called when the store ends

	mu    sync.Mutex
	file  *os.File // nil: nothing is kept
	size  int64    // of the file
	live  int64    // bytes of the records that count
	types map[string]map[string]place
	away  []byte // wire.Away
}

// A place is where a resource is in the file.
type place struct {
	version string
	at      int64 // of the message Resource
	size    int32
}

// A record is a message of the file. Its fields apply in their order.
//
//	message Record { string type = 1; repeated Resource put = 2; repeated string remove = 3; Away away = 4; string key = 5; }
const fieldType, fieldPut, fieldRemove, fieldAway, fieldKey = 1, 2, 3, 4, 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openStore opens the file at path, or begins a new one: also if the file is of another key.
// Without a path, or a file system that takes the file, nothing is kept.
func openStore(path, key string, failed func(error)) *store {
	s := &store{path: path, key: key, failed: failed}
	if s.load() != nil {
		s.begin()
	}
	return s
}

// begin starts an empty file. What is known of a control plane that is away stays.
func (s *store) begin() {
	s.drop()
	if s.path != "" {
		s.replace(nil)
	}
}

// replace makes a file of what is in the index and in the current file, and of one record more.
// The current one is complete until the new one is.
func (s *store) replace(message []byte) (end int64, ok bool) {
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
	if err == nil && message != nil {
		end, err = s.append(message)
	}
	if err == nil {
		err = os.Rename(s.path+".new", s.path)
	}
	if err != nil {
		s.end(err)
	}
	return end, err == nil
}

// copy writes what is at the beginning of each file, and resources of the old one.
func (s *store) copy(old *os.File, types map[string]map[string]place) error {
	n, err := s.file.Write([]byte(storeFormat))
	if s.size, s.live = int64(n), int64(n); err != nil {
		return err
	}
	if _, err := s.append(wire.AppendField(nil, fieldKey, s.key)); err != nil {
		return err
	}
	if s.away != nil {
		if _, err := s.append(wire.AppendField(nil, fieldAway, s.away)); err != nil {
			return err
		}
	}
	for _, typeURL := range slices.Sorted(maps.Keys(types)) {
		for _, name := range slices.Sorted(maps.Keys(types[typeURL])) {
			r, err := types[typeURL][name].read(old)
			if err != nil {
				return err
			}
			message := wire.AppendField(wire.AppendField(nil, fieldType, typeURL), fieldPut, r.raw)
			end, err := s.append(message)
			if err != nil {
				return err
			}
			s.index(typeURL, r, end-int64(len(r.raw)))
		}
	}
	return nil
}

func (s *store) drop() {
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.size, s.live, s.types = nil, 0, 0, map[string]map[string]place{}
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

// load reads the file.
func (s *store) load() error {
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
	if !info.Mode().IsRegular() || info.Size() < int64(len(storeFormat)) || info.Size() > maxStore+maxGarbage {
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
	for rest := raw[s.size:]; len(rest) >= recordHead; rest = raw[s.size:] {
		n := int64(binary.LittleEndian.Uint32(rest))
		if n > int64(len(rest)-recordHead) {
			break
		}
		message := rest[recordHead : recordHead+n]
		if crc32.Checksum(message, castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		first := s.size == int64(len(storeFormat))
		if err := s.replay(message, s.size+recordHead, first); err != nil {
			return err
		}
		s.size += recordHead + n
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

// replay applies a record that begins at an offset of the file.
func (s *store) replay(message []byte, at int64, first bool) error {
	typeURL, keyed := "", false
	err := wire.Fields(message, func(f wire.Field) error {
		switch f.Number {
		case fieldType:
			typeURL = string(f.Bytes)
		case fieldPut:
			r, err := parseResource(f.Bytes)
			s.index(typeURL, r, at+int64(cap(message)-cap(f.Bytes))) // one is a part of the other
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
	if err == nil && first && !keyed {
		err = errors.New("a file of another proxy")
	}
	return err
}

func (s *store) index(typeURL string, r resource, at int64) {
	s.unindex(typeURL, r.name)
	names := s.types[typeURL]
	if names == nil {
		names = map[string]place{}
		s.types[typeURL] = names
	}
	names[r.name] = place{r.version, at, int32(len(r.raw))}
	s.live += s.cost(typeURL, len(r.raw))
}

func (s *store) unindex(typeURL, name string) (was bool) {
	p, was := s.types[typeURL][name]
	if was {
		delete(s.types[typeURL], name)
		s.live -= s.cost(typeURL, int(p.size))
	}
	return was
}

// cost is about how many bytes of the file a resource takes.
func (s *store) cost(typeURL string, size int) int64 {
	return int64(recordHead + 8 + len(typeURL) + size)
}

// append writes a record, and returns where its last byte is.
func (s *store) append(message []byte) (end int64, err error) {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(message)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(message, castagnoli))
	for _, part := range [][]byte{head, message} {
		n, err := s.file.Write(part)
		if s.size += int64(n); err != nil {
			return s.size, err
		}
	}
	return s.size, nil
}

// write appends a record to what the index has, or ends the store.
func (s *store) write(message []byte) (end int64, ok bool) {
	if s.file == nil {
		return 0, false
	}
	if s.live+int64(len(message)) > maxStore {
		s.end(fmt.Errorf("%s: more than %d bytes", s.path, maxStore))
		return 0, false
	}
	if s.size > s.live+maxGarbage {
		return s.replace(message)
	}
	end, err := s.append(message)
	if err != nil {
		s.end(err)
	}
	return end, err == nil
}

func (p place) read(file *os.File) (resource, error) {
	raw := make([]byte, p.size)
	if _, err := file.ReadAt(raw, p.at); err != nil {
		return resource{}, err
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

// change applies a response, in one record.
func (s *store) change(p response) {
	if s.file == nil {
		return
	}
	message := wire.AppendField(make([]byte, 0, p.size), fieldType, p.typeURL)
	empty := len(message)
	for _, name := range p.removed {
		if s.unindex(p.typeURL, name) {
			message = wire.AppendField(message, fieldRemove, name)
		}
	}
	var ends []int // of p.resources that are new
	p.resources = slices.DeleteFunc(p.resources, func(r resource) bool {
		if r.version != "" && r.version == s.types[p.typeURL][r.name].version {
			return true
		}
		s.unindex(p.typeURL, r.name)
		message = wire.AppendField(message, fieldPut, r.raw)
		ends = append(ends, len(message))
		return false
	})
	if len(message) == empty {
		return
	}
	end, ok := s.write(message)
	if !ok {
		return
	}
	for i, r := range p.resources {
		s.index(p.typeURL, r, end-int64(len(message)-ends[i]+len(r.raw)))
	}
}

// setAway keeps what is used while the control plane is away.
func (s *store) setAway(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = raw
	s.write(wire.AppendField(nil, fieldAway, s.away))
}

// complete reports whether an Envoy can start with what is kept.
func (s *store) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.types[clusterType]) > 0 && len(s.types[listenerType]) > 0
}

// names returns those that are kept of a type, sorted.
func (s *store) names(typeURL string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.types[typeURL]))
}

// get returns a resource.
func (s *store) get(typeURL, name string) (resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.types[typeURL][name]
	if !ok || s.file == nil {
		return resource{}, false
	}
	r, err := p.read(s.file)
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
