// Package netlink talks to the kernel through netlink(7): it requests objects and lists, and sends
// batches of nfnetlink messages that the kernel applies in one transaction.
package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// A Conn is a connection to the kernel, in the network namespace of the thread that opened it. It
// replaces the connections of Go's netlink libraries, which request an acknowledgement of every
// message in a batch: above some 120 rules these overflow the receive buffer after the kernel has
// committed. Nor do the libraries enlarge the send buffer, into which every transaction must fit.
// They also wait in the runtime's poller, which takes most of the time of a short request.
//
// The kernel answers within the system call that sends the request. So a Conn never waits: an answer that is not
// in the socket's queue when the system call returns never comes.
type Conn struct {
	FD    int
	Force bool // the send buffer may exceed the machine's limit, if the caller is privileged

	protocol int
	seq      uint32
	buf      []byte // for one answer
}

// Open opens a connection for a protocol: NETLINK_ROUTE, NETLINK_NETFILTER.
func Open(protocol int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	// With this option, an error contains only the header of the message that caused it.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Conn{FD: fd, Force: true, protocol: protocol}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return unix.Close(c.FD) }

// Fit enlarges the send buffer for a message of this size. In a user namespace, the kernel's limit
// for unprivileged processes (net.core.wmem_max) applies.
func (c *Conn) Fit(size int) error {
	if got, err := c.window(); err != nil || size <= got {
		return err
	}
	if !c.Force || unix.SetsockoptInt(c.FD, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(c.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return err
		}
	}
	got, err := c.window()
	if err == nil && size > got {
		err = fmt.Errorf("one transaction of %d bytes, of which the kernel takes %d (raise net.core.wmem_max to %d): %w", size, got, size, unix.EMSGSIZE)
	}
	return err
}

// window returns the size of the largest message that fits into the send buffer.
func (c *Conn) window() (int, error) {
	const overhead = 32 // netlink_sendmsg
	got, err := unix.GetsockoptInt(c.FD, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return got - overhead, err
}

func (c *Conn) send(message []byte) error {
	if err := c.Fit(len(message)); err != nil {
		return err
	}
	for {
		err := unix.Sendto(c.FD, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive returns the messages in one datagram of the kernel. It asks for the size first: the agent lists sockets
// every few seconds, and a buffer for the largest answer would be most of the memory that it allocates.
func (c *Conn) receive() ([]byte, error) {
	for {
		var from unix.Sockaddr
		size, _, err := unix.Recvfrom(c.FD, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC|unix.MSG_PEEK)
		if err == nil {
			c.buf = slices.Grow(c.buf[:0], size)[:size]
			_, from, err = unix.Recvfrom(c.FD, c.buf, unix.MSG_DONTWAIT)
		}
		switch sender, _ := from.(*unix.SockaddrNetlink); {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case sender != nil && sender.Pid == 0: // the kernel
			return c.buf, nil
		}
	}
}

// A Message is a message of the kernel. Its data does not contain the header.
type Message struct {
	Kind, Flags uint16
	Seq         uint32
	Data        []byte
}

const headerSize = unix.SizeofNlMsghdr

// Split splits the first message off a datagram.
func Split(b []byte) (m Message, rest []byte, err error) {
	if len(b) < headerSize {
		return m, nil, fmt.Errorf("an answer that ends within a message")
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < headerSize || size > len(b) {
		return m, nil, fmt.Errorf("a message of %d bytes in an answer of %d", size, len(b))
	}
	m = Message{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]), b[headerSize:size]}
	return m, b[min(len(b), align(size)):], nil
}

func align(n int) int { return (n + 3) &^ 3 }

// Errno returns the error in a message of type NLMSG_ERROR; nil: an acknowledgement.
func (m Message) Errno() error {
	if len(m.Data) < 4 {
		return errors.New("an error without a number")
	}
	if n := int32(binary.NativeEndian.Uint32(m.Data)); n != 0 {
		return unix.Errno(-n)
	}
	return nil
}

// ErrChanged means that the kernel's tables changed while they were listed.
var ErrChanged = errors.New("the tables change while they are read")

// Dump requests a list and calls a function for every entry. The entry's data is valid only during the call.
func (c *Conn) Dump(kind uint16, fill func(*Batch), each func(data []byte) error) error {
	return c.Ask(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, fill, each)
}

// Get requests one object.
func (c *Conn) Get(kind uint16, fill func(*Batch), each func(data []byte) error) error {
	return c.Ask(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, fill, each)
}

// Ask makes a request with the given flags, and calls a function for every message of the answer, up to its first error.
func (c *Conn) Ask(kind, flags uint16, fill func(*Batch), each func(data []byte) error) error {
	var request Batch
	c.seq++
	request.seq = c.seq
	request.Message(kind, flags, "", func() { fill(&request) })
	if request.Err != nil {
		return request.Err
	}
	if err := c.send(request.Buf); err != nil {
		return err
	}
	for {
		rest, err := c.receive()
		if err != nil {
			return err
		}
		for len(rest) > 0 {
			var m Message
			if m, rest, err = Split(rest); err != nil {
				return err
			}
			switch {
			case m.Seq != c.seq: // left over from an earlier request that failed
			case m.Flags&unix.NLM_F_DUMP_INTR != 0:
				return c.abandon(ErrChanged)
			case m.Kind == unix.NLMSG_DONE || m.Kind == unix.NLMSG_ERROR:
				return m.Errno()
			default:
				if err := each(m.Data); err != nil {
					return c.abandon(err)
				}
			}
		}
	}
}

// abandon returns an error after the rest of an answer was given up. Until a list has ended, the kernel begins no other
// one for the same socket (EBUSY), and reading to the end of a long list takes seconds. So another socket takes its place.
func (c *Conn) abandon(err error) error {
	other, failed := Open(c.protocol)
	if failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, unix.Dup3(other.FD, c.FD, unix.O_CLOEXEC), other.Close())
}

// A Batch is a list of messages that the kernel applies in one transaction.
type Batch struct {
	Buf []byte
	Err error // the error of a message that cannot be encoded

	seq  uint32 // of the next message
	what []string
}

// Message appends a message, and describes it for errors.
func (b *Batch) Message(kind, flags uint16, what string, fill func()) {
	start := len(b.Buf)
	b.Buf = append(b.Buf, make([]byte, headerSize)...)
	fill()
	head := b.Buf[start:]
	binary.NativeEndian.PutUint32(head, uint32(len(head)))
	binary.NativeEndian.PutUint16(head[4:], kind)
	binary.NativeEndian.PutUint16(head[6:], flags)
	binary.NativeEndian.PutUint32(head[8:], b.seq)
	b.seq++
	b.what = append(b.what, what)
}

// Generic appends the header that all nfnetlink messages have.
func (b *Batch) Generic(family byte, resource uint16) {
	b.Buf = append(b.Buf, family, unix.NFNETLINK_V0, byte(resource>>8), byte(resource))
}

// Attribute appends an attribute, padded as the kernel requires.
func (b *Batch) Attribute(kind uint16, value []byte) {
	b.Nest(kind, func() { b.Buf = append(b.Buf, value...) })
}

// Text appends an attribute with a NUL-terminated string.
func (b *Batch) Text(kind uint16, value string) {
	b.Nest(kind, func() { b.Buf = append(append(b.Buf, value...), 0) })
}

// Number appends an attribute with a number in the byte order of nfnetlink.
func (b *Batch) Number(kind uint16, n uint32) {
	b.Nest(kind, func() { b.Buf = binary.BigEndian.AppendUint32(b.Buf, n) })
}

// Nest appends an attribute that contains the attributes appended by fill.
func (b *Batch) Nest(kind uint16, fill func()) {
	start := len(b.Buf)
	b.Buf = append(b.Buf, 0, 0, 0, 0)
	fill()
	size := len(b.Buf) - start
	if size > math.MaxUint16 {
		b.Err = errors.Join(b.Err, fmt.Errorf("an attribute of %d bytes", size))
	}
	binary.NativeEndian.PutUint16(b.Buf[start:], uint16(size))
	binary.NativeEndian.PutUint16(b.Buf[start+2:], kind)
	b.Buf = append(b.Buf, make([]byte, align(size)-size)...)
}

// Commit sends the messages that fill appends to a subsystem of nfnetlink, as one transaction.
// After an error that wraps ErrUnknown the transaction may have been committed; after other errors
// it was not.
func (c *Conn) Commit(subsystem uint16, fill func(*Batch)) error {
	b := Batch{seq: c.seq + 1}
	resource := func() { b.Generic(unix.AF_UNSPEC, subsystem) }
	b.Message(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, "", resource)
	start, last := 0, 0
	for fill(&b); start < len(b.Buf); start += int(binary.NativeEndian.Uint32(b.Buf[start:])) {
		last = start
	}
	if b.Err != nil {
		return b.Err
	}
	// A single acknowledgement, of the last message, shows that no earlier message failed.
	b.Buf[last+6] |= unix.NLM_F_ACK
	acknowledged := b.seq - 1
	b.Message(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, "", resource)
	first := c.seq + 1
	c.seq = b.seq
	if err := c.send(b.Buf); err != nil {
		return err
	}
	err := c.verdict(func(seq uint32) string {
		if i := int(seq - first); i >= 0 && i < len(b.what) {
			return b.what[i]
		}
		return ""
	}, acknowledged)
	if err != nil {
		c.drain()
	}
	return err
}

// drain reads and drops the remaining answers, which would leave no room for later ones.
func (c *Conn) drain() {
	for {
		if _, err := c.receive(); err != nil && err != unix.ENOBUFS {
			return
		}
	}
}

// ErrUnknown means that the kernel's answer to a transaction is lost.
var ErrUnknown = errors.New("the kernel's answer is lost; the transaction may have been applied")

// verdict reads the answers to a transaction, and returns the first error; nil after the
// acknowledgement.
func (c *Conn) verdict(what func(seq uint32) string, acknowledged uint32) error {
	lost := error(nil)
	for {
		rest, err := c.receive()
		if err == unix.ENOBUFS { // the receive buffer overflowed, but contains the earlier answers
			lost = err
			continue
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrUnknown, errors.Join(lost, err))
		}
		for len(rest) > 0 {
			var m Message
			if m, rest, err = Split(rest); err != nil {
				return fmt.Errorf("%w (%w)", ErrUnknown, err)
			}
			if m.Kind != unix.NLMSG_ERROR {
				continue
			}
			if err := m.Errno(); err != nil {
				if about := what(m.Seq); about != "" {
					return fmt.Errorf("%s: %w", about, err)
				}
				return err
			}
			if m.Seq == acknowledged {
				return nil
			}
		}
	}
}

// Attributes iterates over a list of attributes.
type Attributes struct {
	Rest  []byte // unread part
	Kind  uint16 // of the current attribute, without flags
	Value []byte
	Err   error
}

// Next moves to the next attribute. It returns false if there is none.
func (a *Attributes) Next() bool {
	if a.Err != nil || len(a.Rest) == 0 {
		return false
	}
	if len(a.Rest) < 4 {
		a.Err = errors.New("a list that ends within an attribute")
		return false
	}
	size := int(binary.NativeEndian.Uint16(a.Rest))
	if size < 4 || size > len(a.Rest) {
		a.Err = fmt.Errorf("an attribute of %d bytes in a list of %d", size, len(a.Rest))
		return false
	}
	a.Kind = binary.NativeEndian.Uint16(a.Rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.Value = a.Rest[4:size]
	a.Rest = a.Rest[min(len(a.Rest), align(size)):]
	return true
}

// Text returns the value without its final NUL.
func (a *Attributes) Text() string {
	v := a.Value
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// Number returns the value, in the byte order that the kernel uses for all of nf_tables.
func (a *Attributes) Number() uint32 {
	if len(a.Value) != 4 {
		a.Err = fmt.Errorf("a number of %d bytes", len(a.Value))
		return 0
	}
	return binary.BigEndian.Uint32(a.Value)
}

// AttributesOf returns the attributes of a message after its generic header, and the generation of
// the tables, which is in that header.
func AttributesOf(data []byte) (Attributes, uint16) {
	const size = 4
	if len(data) < size {
		return Attributes{Err: fmt.Errorf("a message of %d bytes", len(data))}, 0
	}
	return Attributes{Rest: data[size:]}, binary.BigEndian.Uint16(data[2:])
}
