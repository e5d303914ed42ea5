//go:build linux

package ipset

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
)

// A Digester finds changes of our sets, of which the kernel reports none. It reads them by a socket that stays open,
// except sets whose entries packets change.
type Digester struct {
	conn conn
	sets map[string]uint32 // number of entries by name
}

// OpenDigester opens the sets that exist in the network namespace of the calling thread.
func OpenDigester() (Digester, error) {
	c, err := open()
	if err != nil {
		return Digester{}, err
	}
	d := Digester{c, map[string]uint32{}}
	names, err := c.names()
	for _, name := range names {
		var s Set
		if s, err = c.header(name); err != nil {
			break
		}
		if s.Timeout == 0 {
			d.sets[name] = s.entries
		}
	}
	if err != nil || len(d.sets) == 0 {
		d.Close()
		return Digester{}, err
	}
	return d, nil
}

// Close closes the socket, which keeps the network namespace alive.
func (d Digester) Close() {
	if d.conn.Conn != nil {
		d.conn.Close()
	}
}

// Digest adds the sets to h. Of a set whose number of entries is another one than at first, it adds that number only.
func (d Digester) Digest(h *maphash.Hash) error {
	for _, name := range slices.Sorted(maps.Keys(d.sets)) {
		s, err := d.conn.header(name)
		if err == nil && s.entries == d.sets[name] {
			err = d.conn.list(name, 0, func(data []byte) error {
				h.Write(data)
				return nil
			})
		}
		if err != nil {
			return err
		}
		h.Write(binary.NativeEndian.AppendUint32(nil, s.entries))
	}
	return nil
}
