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
	// maxStore bounds what is kept, in bytes of memory and so of the file. The pod's volume in memory
	// has 32 MiB, and two files while one is replaced.
	maxStore = 12 << 20
	overhead = 128 // bytes of memory of a resource or a name, besides its strings

	// storeEvery is how long what Envoy accepts may not be in the file yet. So an Envoy that starts,
	// and accepts hundreds of messages, costs one write or two.
	storeEvery  = 2 * time.Second
	storeFormat = "outrider relay 3\n"
)

var errFull = fmt.Errorf("it takes more than %d bytes of memory", maxStore)

// A store keeps the resources that Envoy has accepted, for an Envoy that starts while the control
// plane is away. So that an agent that starts has them too, they are in a file: a snapshot, which is
// replaced as a whole within storeEvery of a change. An agent that is killed may lose the last one.
//
// The file is its format, the CRC-32C of a message, and the message. It is not compressed: what compresses
// takes 1 MiB of memory, and more of the agent's size than the files of most pods have. A file that is
// damaged, of another format or of another proxy is removed.
type store struct {
	path, key string
	log       *slog.Logger

	writing sync.Mutex // of the file; before mu

	mu    sync.Mutex
	off   bool // nothing is kept until a new Envoy begins: what is known would not be all
	types map[string]map[string]resource
	used  int    // memory of types and away
	away  []byte // wire.Away
	size  int64  // of the file
	timer *time.Timer
}

// The message of the file. A type is that of the resources that follow it.
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
	// Not through a link, and not from a pipe.
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

// load takes what the message of a file has.
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

// memory is about how many bytes the store has of a resource.
func (r resource) memory() int { return overhead + len(r.name) + len(r.version) + len(r.raw) }

// put keeps a copy: a resource is a part of a message.
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

// drop forgets all resources.
func (s *store) drop() { s.types, s.used = map[string]map[string]resource{}, len(s.away) }

// giveUp keeps nothing from now on, until a new Envoy begins.
func (s *store) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(err)
}

// end is giveUp with mu locked.
func (s *store) end(err error) {
	if s.off {
		return
	}
	s.drop()
	s.off = true
	s.log.Warn("Envoy's configuration is not kept: without a control plane a new Envoy waits for it", "error", err)
	s.changed()
}

// changed is called with mu locked. The file follows.
func (s *store) changed() {
	if s.timer == nil {
		s.timer = time.AfterFunc(storeEvery, s.write)
	}
}

// accept keeps what Envoy has accepted. With fresh it is the first of its type on a stream:
// then everything that Envoy did not have before it is of an earlier Envoy, and dropped.
func (s *store) accept(p response, fresh bool, initial map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh && len(initial) == 0 && p.typeURL == clusterType {
		s.off = false // what was too much may not be any more
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

// forget removes names that Envoy does not subscribe to any more.
func (s *store) forget(typeURL string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.remove(typeURL, name) {
			s.changed()
		}
	}
}

// setAway keeps what is used while the control plane is away.
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

// complete reports whether an Envoy can start with what is kept.
func (s *store) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.types[clusterType]) > 0 && len(s.types[listenerType]) > 0
}

// names returns all that are kept of a type, sorted.
func (s *store) names(typeURL string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.types[typeURL]))
}

// get returns a resource.
func (s *store) get(typeURL, name string) (resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.types[typeURL][name]
	return r, ok
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

// write makes the file what is kept, or removes it if that is nothing.
func (s *store) write() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.timer = nil
	types, away := map[string][]resource{}, s.away
	for typeURL, names := range s.types { // any order: a map again
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
		os.Remove(s.path) // what it has is out of date
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

// close writes what is not in the file yet.
func (s *store) close() {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.write()
}
