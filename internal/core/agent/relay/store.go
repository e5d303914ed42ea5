package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/wire"
)

const (
	// maxStore bounds the store, in bytes of memory and therefore also of the file. The pod's
	// in-memory volume has 32 MiB, and contains two files during a replacement.
	maxStore = 12 << 20
	overhead = 128 // memory of a resource or a name in bytes, besides its strings

	// storeEvery is the maximum time until a change is in the file. Because of this delay, an Envoy that starts
	// and accepts hundreds of messages causes only one or two writes.
	storeEvery  = 2 * time.Second
	storeFormat = "outrider relay 3\n"
)

var errFull = fmt.Errorf("it takes more than %d bytes of memory", maxStore)

// A store keeps the resources that Envoy has accepted, for an Envoy that starts while the control plane is
// unreachable. They are also in a file for the next agent: a snapshot, replaced as a whole within storeEvery of
// a change. An agent that is killed may lose the last snapshot.
//
// The file consists of a format identifier, the CRC-32C of a message, and the message. It is not
// compressed: a compressor takes 1 MiB of memory, and adds more to the agent's size than the files
// of most pods contain. A file that is damaged, of another format or of another proxy is removed.
type store struct {
	path, key string
	log       *slog.Logger

	writing sync.Mutex // protects the file; locked before mu

	mu    sync.Mutex
	off   bool // nothing is stored until a new Envoy starts, since the store would be incomplete
	types map[string]map[string]resource
	used  int    // memory of types and away in bytes
	away  []byte // encoded wire.Away
	size  int64  // of the file in bytes
	timer *time.Timer
}

// The message in the file. A type applies to the resources that follow it.
//
//	message Snapshot { string key = 5; Away away = 4; repeated { string type = 1; repeated Resource put = 2; } }
const fieldType, fieldPut, fieldAway, fieldKey = 1, 2, 4, 5

// openStore reads the file at path.
func openStore(path, key string, log *slog.Logger) *store {
	s := &store{path: path, key: key, log: log, types: map[string]map[string]resource{}}
	if err := s.read(); err != nil {
		s.drop()
		s.away = nil
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the configuration that an earlier Envoy had is ignored", "file", path, "error", err)
		}
		os.Remove(path)
	}
	return s
}

func (s *store) read() error {
	// The path may be neither a link nor a pipe.
	file, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a regular file"))
	}
	content, err := io.ReadAll(io.LimitReader(file, maxStore+1))
	if err != nil {
		return err
	}
	if len(content) > maxStore {
		return errFull
	}
	head := len(storeFormat) + crc32.Size
	if len(content) < head || string(content[:len(storeFormat)]) != storeFormat {
		return errors.New("it has another format")
	}
	message := content[head:]
	if binary.LittleEndian.Uint32(content[len(storeFormat):]) != crc32.Checksum(message, castagnoli) {
		return errors.New("it is damaged: its checksum is another one")
	}
	return s.load(message)
}

// load stores the content of a file's message. It fails if the file belongs to another proxy.
func (s *store) load(message []byte) error {
	key, typeURL := "", ""
	err := wire.Fields(message, func(f wire.Field) error {
		switch f.Number {
		case fieldKey:
			key = string(f.Bytes)
		case fieldAway:
			s.used += len(f.Bytes) - len(s.away)
			s.away = slices.Clone(f.Bytes)
		case fieldType:
			typeURL = string(f.Bytes)
		case fieldPut:
			r, err := parseResource(f.Bytes)
			if s.put(typeURL, r); s.used > maxStore {
				return errFull
			}
			return err
		}
		return nil
	})
	if err == nil && key != s.key {
		err = errors.New("it is another proxy's")
	}
	return err
}

// memory returns the approximate memory of a resource in the store, in bytes.
func (r resource) memory() int { return overhead + len(r.name) + len(r.version) + len(r.raw) }

// put stores a copy, because the resource shares the memory of its message.
func (s *store) put(typeURL string, r resource) {
	s.remove(typeURL, r.name)
	if s.types[typeURL] == nil {
		s.types[typeURL] = map[string]resource{}
	}
	r.raw = slices.Clone(r.raw)
	s.types[typeURL][r.name] = r
	s.used += r.memory()
}

func (s *store) remove(typeURL, name string) (was bool) {
	r, was := s.types[typeURL][name]
	if was {
		if delete(s.types[typeURL], name); len(s.types[typeURL]) == 0 {
			delete(s.types, typeURL)
		}
		s.used -= r.memory()
	}
	return was
}

// drop removes all resources.
func (s *store) drop() { s.types, s.used = map[string]map[string]resource{}, len(s.away) }

// giveUp stops storing until a new Envoy starts.
func (s *store) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(err)
}

// end does the same as giveUp, with mu locked.
func (s *store) end(err error) {
	if s.off {
		return
	}
	s.drop()
	s.off = true
	s.log.Warn("Envoy's configuration is not kept: without a control plane a new Envoy waits for it", "error", err)
	s.changed()
}

// changed schedules a write of the file. It is called with mu locked.
func (s *store) changed() {
	if s.timer == nil {
		s.timer = time.AfterFunc(storeEvery, s.write)
	}
}

// accept stores resources that Envoy has accepted. If fresh is true, they are the first of their type on a
// stream. Stored resources that Envoy did not have when the stream began then belong to an earlier Envoy, and
// are dropped.
func (s *store) accept(p response, fresh bool, initial map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh && len(initial) == 0 && p.typeURL == clusterType {
		s.off = false // the store may fit again
	}
	if s.off {
		return
	}
	if fresh {
		for name, have := range s.types[p.typeURL] { // any order: all are removed
			if initial[name] != have.version {
				s.remove(p.typeURL, name)
			}
		}
	}
	for _, name := range p.removed {
		s.remove(p.typeURL, name)
	}
	for _, r := range p.resources {
		if s.put(p.typeURL, r); s.used > maxStore {
			s.end(errFull)
			return
		}
	}
	s.changed()
}

// forget removes names that Envoy no longer subscribes to.
func (s *store) forget(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.remove(typeURL, name) {
			s.changed()
		}
	}
}

// setAway stores the control plane's settings for the time in which it is unreachable. They are an encoded
// wire.Away.
func (s *store) setAway(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += len(raw) - len(s.away)
	s.away = raw
	if s.used > maxStore {
		s.end(errFull)
	}
	s.changed()
}

// complete reports whether an Envoy can start with the stored resources.
func (s *store) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.types[clusterType]) > 0 && len(s.types[listenerType]) > 0
}

// names returns the stored names of a type, sorted.
func (s *store) names(typeURL string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.types[typeURL]))
}

// get returns a stored resource.
func (s *store) get(typeURL, name string) (resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.types[typeURL][name]
	return r, ok
}

// count returns the number of stored resources and the size of the file in bytes.
func (s *store) count() (resources int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, names := range s.types { // any order: a sum
		resources += len(names)
	}
	return resources, s.size
}

// write writes the store to the file, or removes the file if the store is empty.
func (s *store) write() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.timer = nil
	types, away := map[string][]resource{}, s.away
	for typeURL, names := range s.types { // any order: the result is a map
		types[typeURL] = slices.Collect(maps.Values(names))
	}
	s.mu.Unlock()
	var file []byte
	var err error
	if len(types) > 0 {
		file = snapshot(s.key, types, away)
		err = atomicfile.Write(s.path, file, 0o600)
	}
	if len(file) == 0 || err != nil {
		file = nil
		os.Remove(s.path) // its content is out of date
	}
	if err != nil {
		s.log.Warn("Envoy's configuration is not kept for an agent that is restarted", "error", err)
	}
	s.mu.Lock()
	s.size = int64(len(file))
	s.mu.Unlock()
}

// snapshot returns the content of the file.
func snapshot(key string, types map[string][]resource, away []byte) []byte {
	head := len(storeFormat) + crc32.Size
	out := append([]byte(storeFormat), make([]byte, crc32.Size)...)
	out = wire.AppendField(wire.AppendField(out, fieldKey, key), fieldAway, away)
	for typeURL, list := range types { // any order: the names are a map
		out = wire.AppendField(out, fieldType, typeURL)
		for _, r := range list {
			out = wire.AppendField(out, fieldPut, r.raw)
		}
	}
	binary.LittleEndian.PutUint32(out[len(storeFormat):], crc32.Checksum(out[head:], castagnoli))
	return out
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// close writes pending changes to the file.
func (s *store) close() {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.write()
}
