package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// A socket talks to nf_tables. The library's own connection asks for an acknowledgement of
// every message, which overflow the receive buffer above some 120 rules after the kernel has
// committed, and it never enlarges the send buffer, which every transaction must fit in.
//
// The kernel answers within the system call that asks. So a socket never waits: what is
// not in its queue then does not come.
type socket struct {
	fd     int
	seq    uint32
	buf    []byte // of one answer
	window int    // size of the largest message that fits in the send buffer
	force  bool   // try to exceed the machine's limit for it
}

// answerSize is more than the kernel puts into one answer (32 KiB, see netlink_recvmsg).
const answerSize = 64 << 10

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	// An error then has the head of the message that it is about, not all of it.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &socket{fd: fd, buf: make([]byte, answerSize), force: true}, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// fit makes the send buffer large enough for one message of that size. The kernel's limit
// for unprivileged processes (net.core.wmem_max) holds in a user namespace.
func (s *socket) fit(size int) error {
	if size <= s.window {
		return nil
	}
	if !s.force || unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return err
		}
	}
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return err
	}
	const overhead = 32 // netlink_sendmsg
	s.window = got - overhead
	if size > s.window {
		return fmt.Errorf("one transaction of %d bytes, of which the kernel takes %d (raise net.core.wmem_max to %d): %w", size, s.window, size, unix.EMSGSIZE)
	}
	return nil
}

func (s *socket) send(message []byte) error {
	if err := s.fit(len(message)); err != nil {
		return err
	}
	for {
		err := unix.Sendto(s.fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive returns the messages of one datagram of the kernel.
func (s *socket) receive() ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch sender, _ := from.(*unix.SockaddrNetlink); {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n > len(s.buf):
			return nil, fmt.Errorf("an answer of %d bytes", n)
		case sender != nil && sender.Pid == 0: // the kernel
			return s.buf[:n], nil
		}
	}
}

// A message of netlink. The data is without its header.
type message struct {
	kind, flags uint16
	seq         uint32
	data        []byte
}

const headerSize = unix.SizeofNlMsghdr

// split takes the first message off a datagram.
func split(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerSize {
		return m, nil, fmt.Errorf("an answer that ends within a message")
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < headerSize || size > len(b) {
		return m, nil, fmt.Errorf("a message of %d bytes in an answer of %d", size, len(b))
	}
	m = message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]), b[headerSize:size]}
	return m, b[min(len(b), align(size)):], nil
}

func align(n int) int { return (n + 3) &^ 3 }

// errno is the error in a message of type NLMSG_ERROR; nil acknowledges.
func (m message) errno() error {
	if len(m.data) < 4 {
		return errors.New("an error without a number")
	}
	if n := int32(binary.NativeEndian.Uint32(m.data)); n != 0 {
		return unix.Errno(-n)
	}
	return nil
}

// errChanged: the kernel's tables changed while they were listed.
var errChanged = errors.New("the tables change while they are read")

// dump asks for a list and calls each with every entry, which is valid until each
// returns.
func (s *socket) dump(kind uint16, fill func(*batch), each func(data []byte) error) error {
	return s.ask(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, fill, each)
}

// get asks for one object.
func (s *socket) get(kind uint16, fill func(*batch), each func(data []byte) error) error {
	return s.ask(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, fill, each)
}

func (s *socket) ask(kind, flags uint16, fill func(*batch), each func(data []byte) error) error {
	var request batch
	s.seq++
	request.seq = s.seq
	request.message(kind, flags, "", fill)
	if err := s.send(request.buf); err != nil {
		return err
	}
	for {
		rest, err := s.receive()
		if err != nil {
			return err
		}
		for len(rest) > 0 {
			var m message
			if m, rest, err = split(rest); err != nil {
				return err
			}
			switch {
			case m.seq != s.seq: // of an earlier request that ended with an error
			case m.flags&unix.NLM_F_DUMP_INTR != 0:
				return errChanged
			case m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR:
				return m.errno()
			default:
				if err := each(m.data); err != nil {
					return err
				}
			}
		}
	}
}

// A batch is a list of messages that the kernel applies in one transaction.
type batch struct {
	buf  []byte
	seq  uint32 // of the next message
	what []string
	err  error
}

// message appends a message. what is for errors.
func (b *batch) message(kind, flags uint16, what string, fill func(*batch)) {
	start := len(b.buf)
	b.buf = append(b.buf, make([]byte, headerSize)...)
	fill(b)
	head := b.buf[start:]
	binary.NativeEndian.PutUint32(head, uint32(len(head)))
	binary.NativeEndian.PutUint16(head[4:], kind)
	binary.NativeEndian.PutUint16(head[6:], flags)
	binary.NativeEndian.PutUint32(head[8:], b.seq)
	b.seq++
	b.what = append(b.what, what)
}

// generic appends the header that all messages of nfnetlink have.
func (b *batch) generic(family byte, resource uint16) {
	b.buf = append(b.buf, family, unix.NFNETLINK_V0, byte(resource>>8), byte(resource))
}

// attribute appends an attribute, padded as the kernel wants it.
func (b *batch) attribute(kind uint16, value []byte) {
	b.nest(kind, func() { b.buf = append(b.buf, value...) })
}

func (b *batch) text(kind uint16, value string) {
	b.nest(kind, func() { b.buf = append(append(b.buf, value...), 0) })
}

func (b *batch) number(kind uint16, n uint32) {
	b.nest(kind, func() { b.buf = binary.BigEndian.AppendUint32(b.buf, n) })
}

// nest appends an attribute with what fill appends.
func (b *batch) nest(kind uint16, fill func()) {
	start := len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	fill()
	size := len(b.buf) - start
	if size > math.MaxUint16 {
		b.err = errors.Join(b.err, fmt.Errorf("an attribute of %d bytes", size))
	}
	binary.NativeEndian.PutUint16(b.buf[start:], uint16(size))
	binary.NativeEndian.PutUint16(b.buf[start+2:], kind)
	b.buf = append(b.buf, make([]byte, align(size)-size)...)
}

// commit sends the messages that fill makes as one transaction. After an error that wraps
// errUnknown the transaction may have been committed; after others it was not.
func (s *socket) commit(fill func(*batch)) error {
	resource := func(b *batch) { b.generic(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES) }
	b := batch{seq: s.seq + 1}
	b.message(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, "", resource)
	start, last := 0, 0
	for fill(&b); start < len(b.buf); start += int(binary.NativeEndian.Uint32(b.buf[start:])) {
		last = start
	}
	if b.err != nil {
		return b.err
	}
	// One acknowledgement, of the last message, shows that there was no error before it.
	b.buf[last+6] |= unix.NLM_F_ACK
	acknowledged := b.seq - 1
	b.message(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, "", resource)
	first := s.seq + 1
	s.seq = b.seq
	if err := s.send(b.buf); err != nil {
		return err
	}
	err := s.verdict(func(seq uint32) string {
		if i := int(seq - first); i >= 0 && i < len(b.what) {
			return b.what[i]
		}
		return ""
	}, acknowledged)
	if err != nil {
		s.drain()
	}
	return err
}

// drain takes what is left of the answers, which would leave no room for the next ones.
func (s *socket) drain() {
	for {
		if _, err := s.receive(); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// errUnknown: the kernel's answer to a transaction is lost.
var errUnknown = errors.New("the kernel's answer is lost; the transaction may have been applied")

// verdict reads the answers to a transaction: the first error, or the acknowledgement.
func (s *socket) verdict(what func(seq uint32) string, acknowledged uint32) error {
	lost := error(nil)
	for {
		rest, err := s.receive()
		if err == unix.ENOBUFS { // the receive buffer overflowed; what came before is in it
			lost = err
			continue
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", errUnknown, errors.Join(lost, err))
		}
		for len(rest) > 0 {
			var m message
			if m, rest, err = split(rest); err != nil {
				return fmt.Errorf("%w (%w)", errUnknown, err)
			}
			if m.kind != unix.NLMSG_ERROR {
				continue
			}
			if err := m.errno(); err != nil {
				if about := what(m.seq); about != "" {
					return fmt.Errorf("%s: %w", about, err)
				}
				return err
			}
			if m.seq == acknowledged {
				return nil
			}
		}
	}
}

// attributes reads a list of attributes.
type attributes struct {
	rest  []byte
	kind  uint16
	value []byte
	err   error
}

// next goes to the next attribute, if there is one.
func (a *attributes) next() bool {
	if a.err != nil || len(a.rest) == 0 {
		return false
	}
	if len(a.rest) < 4 {
		a.err = errors.New("a list that ends within an attribute")
		return false
	}
	size := int(binary.NativeEndian.Uint16(a.rest))
	if size < 4 || size > len(a.rest) {
		a.err = fmt.Errorf("an attribute of %d bytes in a list of %d", size, len(a.rest))
		return false
	}
	a.kind = binary.NativeEndian.Uint16(a.rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.value = a.rest[4:size]
	a.rest = a.rest[min(len(a.rest), align(size)):]
	return true
}

// text is the value without the zero at its end.
func (a *attributes) text() string {
	v := a.value
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// number is the value, in the kernel's byte order for all of nf_tables.
func (a *attributes) number() uint32 {
	if len(a.value) != 4 {
		a.err = fmt.Errorf("a number of %d bytes", len(a.value))
		return 0
	}
	return binary.BigEndian.Uint32(a.value)
}

// attributesOf reads the attributes of a message after its generic header, and returns the
// generation of the tables that the header has.
func attributesOf(data []byte) (attributes, uint16) {
	const size = 4
	if len(data) < size {
		return attributes{err: fmt.Errorf("a message of %d bytes", len(data))}, 0
	}
	return attributes{rest: data[size:]}, binary.BigEndian.Uint16(data[2:])
}
