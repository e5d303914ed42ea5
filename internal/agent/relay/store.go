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
// record). A record that an agent did not finish is cut off by the next one. What the file
// system refuses ends the store, and nothing else: it then keeps nothing.
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

// A record is a message of the file, with one of the fields but the first.
//
//	message Record { string type = 1; Resource put = 2; string remove = 3; Away away = 4; string key = 5; }
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
	if s.path == "" {
		return
	}
	file, err := os.OpenFile(s.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		s.file = file
		err = s.head()
	}
	if err == nil {
		err = os.Rename(s.path+".new", s.path)
	}
	if err != nil {
		s.end(err)
	}
}

// head writes what is at the beginning of each file.
func (s *store) head() error {
	n, err := s.file.Write([]byte(storeFormat))
	if s.size, s.live = int64(n), int64(n); err != nil {
		return err
	}
	if _, err := s.append(wire.AppendField(nil, fieldKey, s.key)); err != nil || s.away == nil {
		return err
	}
	_, err = s.append(wire.AppendField(nil, fieldAway, s.away))
	return err
}

func (s *store) drop() {
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.size, s.live, s.types = nil, 0, 0, map[string]map[string]place{}
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
	file, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.file = file
	raw, err := io.ReadAll(io.LimitReader(file, maxStore+maxGarbage+1))
	if err != nil {
		return err
	}
	if len(raw) < len(storeFormat) || string(raw[:len(storeFormat)]) != storeFormat || len(raw) > maxStore+maxGarbage {
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
			s.index(typeURL, r, at+int64(len(message)-len(f.Bytes)))
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

func (s *store) unindex(typeURL, name string) {
	if p, ok := s.types[typeURL][name]; ok {
		delete(s.types[typeURL], name)
		s.live -= s.cost(typeURL, int(p.size))
	}
}

// cost is about how many bytes of the file a resource takes.
func (s *store) cost(typeURL string, size int) int64 {
	return int64(recordHead + 8 + len(typeURL) + size)
}

// append writes a record, and returns where its last byte is.
func (s *store) append(message []byte) (end int64, err error) {
	record := binary.LittleEndian.AppendUint32(nil, uint32(len(message)))
	record = binary.LittleEndian.AppendUint32(record, crc32.Checksum(message, castagnoli))
	n, err := s.file.Write(append(record, message...))
	s.size += int64(n)
	return s.size, err
}

// write appends a record, or ends the store.
func (s *store) write(message []byte) (end int64, ok bool) {
	if s.file == nil {
		return 0, false
	}
	if s.size > s.live+maxGarbage && !s.rewrite() {
		return 0, false
	}
	if s.live+int64(len(message)) > maxStore {
		s.end(fmt.Errorf("%s: more than %d bytes", s.path, maxStore))
		return 0, false
	}
	end, err := s.append(message)
	if err != nil {
		s.end(err)
	}
	return end, err == nil
}

// rewrite makes a new file of what counts.
func (s *store) rewrite() bool {
	old, types := s.file, s.types
	s.file = nil
	s.begin()
	defer old.Close()
	for _, typeURL := range slices.Sorted(maps.Keys(types)) {
		for _, name := range slices.Sorted(maps.Keys(types[typeURL])) {
			r, err := types[typeURL][name].read(old)
			if err != nil {
				s.end(err)
			}
			if s.file == nil {
				return false
			}
			s.put(typeURL, r)
		}
	}
	return s.file != nil
}

func (p place) read(file *os.File) (resource, error) {
	raw := make([]byte, p.size)
	if _, err := file.ReadAt(raw, p.at); err != nil {
		return resource{}, err
	}
	return parseResource(raw)
}

func (s *store) put(typeURL string, r resource) {
	message := wire.AppendField(wire.AppendField(nil, fieldType, typeURL), fieldPut, r.raw)
	if end, ok := s.write(message); ok {
		s.index(typeURL, r, end-int64(len(r.raw)))
	}
}

func (s *store) remove(typeURL, name string) {
	if _, ok := s.types[typeURL][name]; !ok {
		return
	}
	s.unindex(typeURL, name)
	s.write(wire.AppendField(wire.AppendField(nil, fieldType, typeURL), fieldRemove, name))
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
				s.remove(p.typeURL, name)
			}
		}
	}
	for _, r := range p.resources {
		if s.types[p.typeURL][r.name].version != r.version || r.version == "" {
			s.put(p.typeURL, r)
		}
	}
	for _, name := range p.removed {
		s.remove(p.typeURL, name)
	}
}

// forget removes a name that Envoy does not subscribe to any more.
func (s *store) forget(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.remove(typeURL, name)
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
