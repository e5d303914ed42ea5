//go:build linux

package iptables

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

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// Commands, attributes and flags of linux/netfilter/ipset/ip_set.h.
const (
	setCreate  = 2
	setDestroy = 3
	setList    = 7
	setAdd     = 9
	setType    = 13

	setProtocol = 6 // what every kernel since 2.6.39 supports

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

	onlyNames = 1 << 1
)

// setConn is a socket to ipset, in the network namespace of the thread that opened it.
type setConn struct{ *netlink.Conn }

func openSets() (setConn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return setConn{}, fmt.Errorf("opening netlink to ipset: %w", err)
	}
	return setConn{c}, nil
}

// request sends one command with its attributes, in big endian.
func (c setConn) request(command uint8, flags netlink.HeaderFlags, fill func(*netlink.AttributeEncoder)) ([]netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	ae.Uint8(attrProtocol, setProtocol)
	fill(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_IPSET<<8 | uint16(command)), Flags: netlink.Request | flags},
		Data:   append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, data...),
	})
	var number unix.Errno
	if errors.As(err, &number) {
		err = setError(number)
	}
	return answers, err
}

// setError explains the numbers that ipset has besides the system's.
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

// Sets returns why sets cannot be used here: the kernel has no ipset, or the iptables
// programs could not talk to it.
func (b *Backend) Sets() error {
	c, err := openSets()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, t := range []struct {
		name   string
		family uint8
	}{{bitmapPort, anyFamily}, {hashNet, family4}, {hashNet, family6}} {
		if _, err := c.request(setType, 0, func(ae *netlink.AttributeEncoder) {
			ae.String(attrType, t.name)
			ae.Uint8(attrFamily, t.family)
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

// names lists our sets. Where the kernel has no ipset, or has not loaded it, there are none:
// a request would load it.
func (c setConn) names() ([]string, error) {
	if _, err := os.Stat("/sys/module"); err == nil {
		if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	answers, err := c.request(setList, netlink.Dump, func(ae *netlink.AttributeEncoder) { ae.Uint32(attrFlags, onlyNames) })
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing sets of ipset: %w", err)
	}
	var out []string
	for _, m := range answers {
		var s kernelSet
		if err := s.decode(m.Data); err != nil {
			return nil, fmt.Errorf("listing sets of ipset: %w", err)
		}
		if strings.HasPrefix(s.name, setPrefix) {
			out = append(out, s.name)
		}
	}
	return out, nil
}

// readSets reads our sets with their elements, by the kernel's names.
func readSets() (map[string]kernelSet, error) {
	c, err := openSets()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	names, err := c.names()
	if err != nil {
		return nil, err
	}
	out := map[string]kernelSet{}
	for _, name := range names {
		answers, err := c.request(setList, netlink.Dump, func(ae *netlink.AttributeEncoder) { ae.String(attrName, name) })
		if err != nil {
			return nil, fmt.Errorf("reading set %s: %w", name, err)
		}
		var s kernelSet
		for _, m := range answers { // a long set comes in several messages
			if err := s.decode(m.Data); err != nil {
				return nil, fmt.Errorf("reading set %s: %w", name, err)
			}
		}
		out[name] = s
	}
	return out, nil
}

// decode adds one message of a list.
func (s *kernelSet) decode(data []byte) error {
	const header = 4 // struct nfgenmsg
	if len(data) < header {
		return fmt.Errorf("a message of %d bytes", len(data))
	}
	ad, err := netlink.NewAttributeDecoder(data[header:])
	if err != nil {
		return err
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case attrName:
			s.name = ad.String()
		case attrType:
			s.kind = ad.String()
		case attrFamily:
			s.family = ad.Uint8()
		case attrData:
			ad.Nested(func(head *netlink.AttributeDecoder) error {
				for head.Next() {
					if head.Type() == dataTimeout {
						s.timeout = head.Uint32()
					}
				}
				return nil
			})
		case attrEntries:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(s.decodeEntry)
				}
				return nil
			})
		}
	}
	return ad.Err()
}

// decodeEntry adds one port or one range of addresses.
func (s *kernelSet) decodeEntry(ad *netlink.AttributeDecoder) error {
	var addr netip.Addr
	bits := -1
	for ad.Next() {
		switch ad.Type() {
		case dataPort:
			p := uint32(ad.Uint16())
			s.ports = append(s.ports, capture.Interval[uint32]{First: p, Last: p})
		case dataIP:
			ad.Nested(func(ip *netlink.AttributeDecoder) error {
				for ip.Next() {
					addr, _ = netip.AddrFromSlice(ip.Bytes())
				}
				return nil
			})
		case dataPrefix:
			bits = int(ad.Uint8())
		case dataTimeout:
		default:
			s.other = true
		}
	}
	if !addr.IsValid() {
		return nil
	}
	if bits < 0 {
		bits = addr.BitLen()
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return err
	}
	s.addresses = append(s.addresses, capture.Range(p))
	return nil
}

// entriesAtOnce bounds one message: an entry takes at most 40 bytes, and an attribute has a
// length of 16 bits.
const entriesAtOnce = 1000

// create makes a set with its elements.
func (c setConn) create(name string, s capture.Set) error {
	kind, family, ok := kindOf(s.Key)
	if !ok || len(name) > maxSetName || s.Timeout%time.Second != 0 || s.Timeout > maxTimeout {
		return fmt.Errorf("set %s by %s: iptables cannot have it", name, s.Key)
	}
	const order = netlink.NetByteOrder
	prefixes := prefixesOf(s.Addresses)
	if _, err := c.request(setCreate, netlink.Acknowledge|netlink.Create|netlink.Excl, func(ae *netlink.AttributeEncoder) {
		ae.String(attrName, name)
		ae.String(attrType, kind)
		ae.Uint8(attrRevision, 0)
		ae.Uint8(attrFamily, family)
		ae.Nested(attrData, func(data *netlink.AttributeEncoder) error {
			if kind == bitmapPort {
				data.Uint16(order|dataPort, 0)
				data.Uint16(order|dataPortTo, 1<<16-1)
				if !s.Constant() {
					data.Uint32(order|dataTimeout, uint32(s.Timeout/time.Second))
				}
			} else {
				data.Uint32(order|dataHashSize, uint32(max(1024, len(prefixes))))
				data.Uint32(order|dataMax, uint32(len(prefixes)))
			}
			return nil
		})
	}); err != nil {
		return fmt.Errorf("making set %s: %w", name, err)
	}
	var entries []func(*netlink.AttributeEncoder) error
	for _, i := range s.Numbers {
		entries = append(entries, func(data *netlink.AttributeEncoder) error {
			data.Uint16(order|dataPort, uint16(i.First))
			data.Uint16(order|dataPortTo, uint16(i.Last))
			return nil
		})
	}
	for _, p := range prefixes {
		entries = append(entries, func(data *netlink.AttributeEncoder) error {
			data.Nested(dataIP, func(ip *netlink.AttributeEncoder) error {
				version := uint16(1) // IPSET_ATTR_IPADDR_IPV4
				if p.Addr().Is6() {
					version = 2
				}
				ip.Bytes(order|version, p.Addr().AsSlice())
				return nil
			})
			data.Uint8(dataPrefix, uint8(p.Bits()))
			return nil
		})
	}
	for chunk := range slices.Chunk(entries, entriesAtOnce) {
		if _, err := c.request(setAdd, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
			ae.String(attrName, name)
			ae.Uint32(attrLine, 0)
			ae.Nested(attrEntries, func(list *netlink.AttributeEncoder) error {
				for _, e := range chunk {
					list.Nested(attrData, e)
				}
				return nil
			})
		}); err != nil {
			return fmt.Errorf("filling set %s: %w", name, err)
		}
	}
	return nil
}

// destroy removes sets that no rule refers to.
func (c setConn) destroy(names []string) error {
	var errs []error
	for _, name := range names {
		if _, err := c.request(setDestroy, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) { ae.String(attrName, name) }); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing set %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// makeSets makes the sets of rs. With finish, those of other rules are removed
// if done, and else those of rs.
func makeSets(rs capture.Ruleset) (generation byte, finish func(done bool) error, err error) {
	c, err := openSets()
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
			if name := setName(generation, s, family); s.IPSet() && (s.Constant() || rs.Families.Has(family)) && !slices.Contains(names, name) {
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

// removeSets removes all sets of ours.
func removeSets() error {
	_, finish, err := makeSets(capture.Ruleset{})
	if err != nil {
		return err
	}
	return finish(true)
}
