//go:build linux

package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// set appends a set with its elements.
func (b batch) set(s capture.Set, id uint32) {
	t := setTypes[s.Key]
	var flags uint32
	switch {
	case !s.Constant():
		flags = unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	case t.interval:
		flags = unix.NFT_SET_INTERVAL
	}
	b.Message(newSet, create, "set "+s.Name, func() {
		ours(b.Batch)
		b.Text(unix.NFTA_SET_NAME, s.Name)
		b.Number(unix.NFTA_SET_FLAGS, flags)
		b.Number(unix.NFTA_SET_KEY_TYPE, t.magic)
		b.Number(unix.NFTA_SET_KEY_LEN, uint32(t.size))
		b.Number(unix.NFTA_SET_ID, id)
		if !s.Constant() {
			b.Attribute(unix.NFTA_SET_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(s.Timeout.Milliseconds())))
			b.Nest(unix.NLA_F_NESTED|unix.NFTA_SET_DESC, func() { b.Number(unix.NFTA_SET_DESC_SIZE, max(sizeByFamily, s.Size)) })
		}
	})
	b.elements(s, t, id)
}

// maxElements bounds the elements in one message: an attribute has at most 64 KiB, and the largest
// element (two bounds of IPv6) takes 64 bytes.
const maxElements = 512

// elements appends the elements of a constant set, in several messages if necessary.
func (b batch) elements(s capture.Set, t setType, id uint32) {
	chunk(b, s, id, s.Numbers, func(i capture.Interval[uint32]) {
		if !t.interval {
			b.element(host32(i.First), false)
			return
		}
		b.element(port(i.First), false)
		if i.Last < 1<<16-1 {
			b.element(port(i.Last+1), true)
		}
	})
	chunk(b, s, id, s.Addresses, func(i capture.Interval[netip.Addr]) {
		b.element(i.First.AsSlice(), false)
		if after := i.Last.Next(); after.IsValid() {
			b.element(after.AsSlice(), true)
		}
	})
}

// chunk appends messages with the elements of a list.
func chunk[T any](b batch, s capture.Set, id uint32, list []T, element func(T)) {
	for part := range slices.Chunk(list, maxElements) {
		b.Message(newElements, create, "elements of set "+s.Name, func() {
			b.Generic(unix.NFPROTO_INET, 0)
			b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, Table)
			b.Text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
			b.Number(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
			b.Nest(unix.NLA_F_NESTED|unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
				for _, e := range part {
					element(e)
				}
			})
		})
	}
}

// element appends one key: a single element, or a bound of an interval. The bool marks the upper bound, which is
// the first key that follows the interval.
func (b batch) element(key []byte, after bool) {
	b.Nest(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, func() {
		b.Nest(unix.NLA_F_NESTED|unix.NFTA_SET_ELEM_KEY, func() { b.Attribute(unix.NFTA_DATA_VALUE, key) })
		if after {
			b.Number(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		}
	})
}

// decodeSet returns a set without its elements, and the name of its table.
func decodeSet(a netlink.Attributes) (table string, s capture.Set, err error) {
	var magic, flags uint32
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_SET_TABLE:
			table = a.Text()
		case unix.NFTA_SET_NAME:
			s.Name = a.Text()
		case unix.NFTA_SET_FLAGS:
			flags = a.Number()
		case unix.NFTA_SET_KEY_TYPE:
			magic = a.Number()
		case unix.NFTA_SET_DESC:
			desc := netlink.Attributes{Rest: a.Value}
			for desc.Next() {
				if desc.Kind == unix.NFTA_SET_DESC_SIZE {
					s.Size = desc.Number()
				}
			}
		case unix.NFTA_SET_TIMEOUT:
			if len(a.Value) == 8 {
				s.Timeout = time.Duration(binary.BigEndian.Uint64(a.Value)) * time.Millisecond
			}
		}
	}
	s.Key = keyOf(magic, flags)
	if s.Key == capture.ByFamily && s.Size == sizeByFamily || s.Constant() {
		s.Size = 0
	}
	return table, s, a.Err
}

// keyOf returns the key of a set of ours. Only the rules that look the set up tell whether it
// contains sources or destinations.
func keyOf(magic, flags uint32) capture.SetKey {
	for _, k := range capture.SetKeys() {
		if t := setTypes[k]; t.magic == magic && (flags&unix.NFT_SET_INTERVAL != 0) == t.interval && flags&(unix.NFT_SET_ANONYMOUS|unix.NFT_SET_MAP) == 0 {
			return k
		}
	}
	return capture.UnknownKey
}

// A bound is the key of an element in the kernel's dump of a set. An interval has two: its first key and its end.
type bound struct {
	key   [16]byte // only the first bytes are used
	after bool     // it is an end: the first key after an interval
}

// decodeElements appends the elements in a message to a list. Their keys have size bytes.
func decodeElements(out []bound, a netlink.Attributes, size int) ([]bound, error) {
	for a.Next() {
		if a.Kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list := netlink.Attributes{Rest: a.Value}
		for list.Next() {
			b, err := decodeBound(netlink.Attributes{Rest: list.Value}, size)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		if list.Err != nil {
			return nil, list.Err
		}
	}
	return out, a.Err
}

func decodeBound(a netlink.Attributes, size int) (b bound, err error) {
	found := false
	for a.Next() {
		switch a.Kind {
		case unix.NFTA_SET_ELEM_KEY:
			key := netlink.Attributes{Rest: a.Value}
			for key.Next() {
				if key.Kind == unix.NFTA_DATA_VALUE && len(key.Value) == size {
					found = true
					copy(b.key[:], key.Value)
				}
			}
			if key.Err != nil {
				return b, key.Err
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			b.after = a.Number()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		}
	}
	if !found && a.Err == nil {
		return b, fmt.Errorf("an element without a key of %d bytes", size)
	}
	return b, a.Err
}

// fill sets the elements of s from the bounds in the kernel's dump.
func fill(s *capture.Set, bounds []bound) {
	t := setTypes[s.Key]
	if !t.interval {
		for _, b := range bounds {
			n := binary.NativeEndian.Uint32(b.key[:])
			s.Numbers = append(s.Numbers, capture.Interval[uint32]{First: n, Last: n})
		}
		s.Numbers = capture.Join(s.Key, s.Numbers)
		return
	}
	sort.Slice(bounds, func(i, j int) bool { // sort.Slice takes less code, see sorted in package capture
		x, y := bounds[i], bounds[j]
		if c := bytes.Compare(x.key[:], y.key[:]); c != 0 {
			return c < 0
		}
		return x.after && !y.after
	})
	for i, b := range bounds {
		if b.after {
			continue // not the first key of an interval; nft also begins a list with such a bound
		}
		last := [16]byte(bytes.Repeat([]byte{0xff}, 16))
		if i+1 < len(bounds) {
			last = before(bounds[i+1].key, t.size)
		}
		if s.Key == capture.ByPort {
			s.Numbers = append(s.Numbers, capture.Interval[uint32]{First: uint32(binary.BigEndian.Uint16(b.key[:])), Last: uint32(binary.BigEndian.Uint16(last[:]))})
			continue
		}
		s.Addresses = append(s.Addresses, capture.Interval[netip.Addr]{First: addressOf(b.key, t.size), Last: addressOf(last, t.size)})
	}
	s.Numbers, s.Addresses = capture.Join(s.Key, s.Numbers), capture.JoinAddresses(s.Addresses)
}

func addressOf(key [16]byte, size int) netip.Addr {
	a, _ := netip.AddrFromSlice(key[:size])
	return a
}

// before returns the preceding key. It must not be called with the lowest key.
func before(key [16]byte, size int) [16]byte {
	for i := size - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
	return key
}
