//go:build linux

package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// Commands, attributes and flags of linux/netfilter/ipset/ip_set.h.
const (
	setCreate  = 2
	setDestroy = 3
	setList    = 7
	setAdd     = 9
	setType    = 13

	setProtocol = 6 // supported by every kernel since 2.6.39

	attrProtocol = 1
	attrName     = 2
	attrType     = 3
	attrRevision = 4
	attrFamily   = 5
	attrFlags    = 6
	attrData     = 7
	attrEntries  = 8
	attrLine     = 9

	dataIP       = 1
	dataPrefix   = 3
	dataPort     = 4
	dataPortTo   = 5
	dataTimeout  = 6
	dataHashSize = 18
	dataMax      = 19
	dataElements = 24

	onlyNames  = 1 << 1
	onlyHeader = 1 << 2
)

// A conn is a connection to ipset, in the network namespace of the thread that opened it.
type conn struct{ *netlink.Conn }

func open() (conn, error) {
	c, err := netlink.Open(unix.NETLINK_NETFILTER)
	if err != nil {
		return conn{}, fmt.Errorf("opening netlink to ipset: %w", err)
	}
	return conn{c}, nil
}

// request sends a command with the attributes that the first function appends, and calls the second one for
// every answer.
func (c conn) request(command, flags uint16, fill func(*netlink.Batch), each func(data []byte) error) error {
	err := c.Ask(unix.NFNL_SUBSYS_IPSET<<8|command, unix.NLM_F_REQUEST|flags, func(b *netlink.Batch) {
		b.Generic(unix.AF_INET, 0)
		byteAttribute(b, attrProtocol, setProtocol)
		fill(b)
	}, each)
	var number unix.Errno
	if errors.As(err, &number) {
		err = setError(number)
	}
	return err
}

// change sends a command that has no answer.
func (c conn) change(command, flags uint16, fill func(*netlink.Batch)) error {
	return c.request(command, unix.NLM_F_ACK|flags, fill, func([]byte) error { return nil })
}

// The functions below append attributes with numbers, whose sizes differ from those in nf_tables. Where the
// kernel requires the flag inOrder, the number is in network byte order.
const inOrder = unix.NLA_F_NET_BYTEORDER

func byteAttribute(b *netlink.Batch, kind uint16, n byte) { b.Attribute(kind, []byte{n}) }

func portAttribute(b *netlink.Batch, kind, port uint16) {
	b.Attribute(inOrder|kind, binary.BigEndian.AppendUint16(nil, port))
}

func nested(b *netlink.Batch, kind uint16, fill func()) { b.Nest(unix.NLA_F_NESTED|kind, fill) }

// setError explains error numbers that only ipset uses.
func setError(number unix.Errno) error {
	const private = 4096
	switch {
	case number == private+2:
		return errors.New("the kernel has no such type of set")
	case number == private+4:
		return errors.New("a rule refers to it")
	case number > private:
		return fmt.Errorf("ipset error %d", int(number))
	case number == unix.EPERM:
		return fmt.Errorf("%w (it takes the capability NET_ADMIN)", number)
	}
	return number
}

// Usable returns an error if sets cannot be used here, because the kernel has no ipset or the iptables programs
// could not access it.
func Usable() error {
	c, err := open()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, t := range []struct {
		name   string
		family uint8
	}{{bitmapPort, anyFamily}, {hashNet, family4}, {hashNet, family6}} {
		if err := c.change(setType, 0, func(b *netlink.Batch) {
			b.Text(attrType, t.name)
			byteAttribute(b, attrFamily, t.family)
		}); err != nil {
			return fmt.Errorf("the kernel has no ipset of type %s: %w", t.name, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("iptables needs the capability NET_RAW for ipset: %w", err)
	}
	return unix.Close(fd)
}

// names lists our sets. If the kernel has no ipset, or has not loaded it, it returns none: a
// request would load the module.
func (c conn) names() ([]string, error) {
	if _, err := os.Stat("/sys/module"); err == nil {
		if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	var out []string
	err := c.request(setList, unix.NLM_F_DUMP, func(b *netlink.Batch) { b.Number(attrFlags, onlyNames) }, func(data []byte) error {
		var s Set
		err := s.decode(data)
		if strings.HasPrefix(s.Name, prefix) {
			out = append(out, s.Name)
		}
		return err
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing sets of ipset: %w", err)
	}
	return out, nil
}

// Read reads our sets with their elements, by the kernel's names.
func Read() (map[string]Set, error) {
	c, err := open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	names, err := c.names()
	if err != nil {
		return nil, err
	}
	out := map[string]Set{}
	for _, name := range names {
		var s Set
		if err := c.list(name, 0, s.decode); err != nil {
			return nil, err
		}
		out[name] = s
	}
	return out, nil
}

// list reads a set, or what the flags say of it. A long one arrives in several messages.
func (c conn) list(name string, flags uint32, each func(data []byte) error) error {
	err := c.request(setList, unix.NLM_F_DUMP, func(b *netlink.Batch) {
		b.Text(attrName, name)
		b.Number(attrFlags, flags)
	}, each)
	if err != nil {
		return fmt.Errorf("reading set %s: %w", name, err)
	}
	return nil
}

// header reads a set without its entries.
func (c conn) header(name string) (s Set, err error) {
	err = c.list(name, onlyHeader, s.decode)
	return s, err
}

// decode adds the content of one message of the kernel's answer to s.
func (s *Set) decode(data []byte) error {
	list, _ := netlink.AttributesOf(data)
	for list.Next() {
		switch list.Kind {
		case attrName:
			s.Name = list.Text()
		case attrType:
			s.Type = list.Text()
		case attrFamily:
			s.Family = byteOf(&list)
		case attrData:
			for head := inside(list); head.next(&list); {
				switch head.Kind {
				case dataTimeout:
					s.Timeout = head.Number()
				case dataElements:
					s.entries = head.Number()
				}
			}
		case attrEntries:
			for entry := inside(list); entry.next(&list); {
				if err := s.decodeEntry(netlink.Attributes{Rest: entry.Value}); err != nil {
					return err
				}
			}
		}
	}
	return list.Err
}

// A nestedList iterates over attributes inside another attribute. It passes its errors on to the
// outer list.
type nestedList struct{ netlink.Attributes }

func inside(a netlink.Attributes) *nestedList {
	return &nestedList{netlink.Attributes{Rest: a.Value}}
}

func (n *nestedList) next(around *netlink.Attributes) bool {
	more := n.Next()
	around.Err = errors.Join(around.Err, n.Err)
	return more
}

// byteOf returns the value of a one-byte attribute.
func byteOf(a *netlink.Attributes) byte {
	if len(a.Value) != 1 {
		a.Err = fmt.Errorf("a number of %d bytes, want 1", len(a.Value))
		return 0
	}
	return a.Value[0]
}

// decodeEntry adds the port or the range of addresses in entry to s.
func (s *Set) decodeEntry(entry netlink.Attributes) error {
	var addr netip.Addr
	bits := -1
	for entry.Next() {
		switch entry.Kind {
		case dataPort:
			if len(entry.Value) != 2 {
				return fmt.Errorf("a port of %d bytes", len(entry.Value))
			}
			p := uint32(binary.BigEndian.Uint16(entry.Value))
			s.Ports = append(s.Ports, capture.Interval[uint32]{First: p, Last: p})
		case dataIP:
			for ip := inside(entry); ip.next(&entry); {
				addr, _ = netip.AddrFromSlice(ip.Value)
			}
		case dataPrefix:
			bits = int(byteOf(&entry))
		case dataTimeout:
		default:
			s.Foreign = true
		}
	}
	if entry.Err != nil || !addr.IsValid() {
		return entry.Err
	}
	if bits < 0 {
		bits = addr.BitLen()
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return err
	}
	s.Addresses = append(s.Addresses, capture.Range(p))
	return nil
}

// entriesAtOnce bounds the entries in one message: an entry takes at most 40 bytes, and the length
// of an attribute has 16 bits.
const entriesAtOnce = 1000

// create creates a set with its elements.
func (c conn) create(name string, s capture.Set) error {
	kind, family, ok := kindOf(s.Key)
	if !ok || len(name) > maxName || s.Timeout%time.Second != 0 || s.Timeout > MaxTimeout {
		return fmt.Errorf("set %s by %s: iptables does not support it", name, s.Key)
	}
	prefixes := prefixesOf(s.Addresses)
	if err := c.change(setCreate, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func(b *netlink.Batch) {
		b.Text(attrName, name)
		b.Text(attrType, kind)
		byteAttribute(b, attrRevision, 0)
		byteAttribute(b, attrFamily, family)
		nested(b, attrData, func() {
			if kind == bitmapPort {
				portAttribute(b, dataPort, 0)
				portAttribute(b, dataPortTo, 1<<16-1)
				if !s.Constant() {
					b.Number(inOrder|dataTimeout, uint32(s.Timeout/time.Second))
				}
			} else {
				b.Number(inOrder|dataHashSize, uint32(max(1024, len(prefixes))))
				b.Number(inOrder|dataMax, uint32(len(prefixes)))
			}
		})
	}); err != nil {
		return fmt.Errorf("making set %s: %w", name, err)
	}
	var entries []func(*netlink.Batch)
	for _, i := range s.Numbers {
		entries = append(entries, func(b *netlink.Batch) {
			portAttribute(b, dataPort, uint16(i.First))
			portAttribute(b, dataPortTo, uint16(i.Last))
		})
	}
	for _, p := range prefixes {
		entries = append(entries, func(b *netlink.Batch) {
			nested(b, dataIP, func() {
				version := uint16(1) // IPSET_ATTR_IPADDR_IPV4
				if p.Addr().Is6() {
					version = 2
				}
				b.Attribute(inOrder|version, p.Addr().AsSlice())
			})
			byteAttribute(b, dataPrefix, byte(p.Bits()))
		})
	}
	for chunk := range slices.Chunk(entries, entriesAtOnce) {
		if err := c.change(setAdd, 0, func(b *netlink.Batch) {
			b.Text(attrName, name)
			b.Number(attrLine, 0)
			nested(b, attrEntries, func() {
				for _, e := range chunk {
					nested(b, attrData, func() { e(b) })
				}
			})
		}); err != nil {
			return fmt.Errorf("filling set %s: %w", name, err)
		}
	}
	return nil
}

// destroy removes sets to which no rule refers.
func (c conn) destroy(names []string) error {
	var errs []error
	for _, name := range names {
		if err := c.change(setDestroy, 0, func(b *netlink.Batch) { b.Text(attrName, name) }); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing set %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Create makes the sets of rs. After the rules are written, finish(true) removes the sets of all other
// rules. If they cannot be written, finish(false) removes the sets of rs.
func Create(rs capture.Ruleset) (generation byte, finish func(done bool) error, err error) {
	c, err := open()
	if err != nil {
		return 0, nil, err
	}
	old, err := c.names()
	if err != nil {
		c.Close()
		return 0, nil, err
	}
	generation = freeGeneration(old)
	var made []string
	finish = func(done bool) error {
		defer c.Close()
		if done {
			return c.destroy(old)
		}
		return c.destroy(made)
	}
	if generation > 'z' {
		return 0, nil, errors.Join(errors.New("sets of too many rule sets are left: run capture clean"), finish(false))
	}
	for _, s := range rs.Sets {
		var names []string
		for _, family := range families {
			if name := Name(generation, s, family); s.IPSet() && (s.Constant() || rs.Families.Has(family)) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			made = append(made, name)
			if err := c.create(name, s); err != nil {
				return 0, nil, errors.Join(err, finish(false))
			}
		}
	}
	return generation, finish, nil
}

// Remove removes all our sets.
func Remove() error {
	_, finish, err := Create(capture.Ruleset{})
	if err != nil {
		return err
	}
	return finish(true)
}
