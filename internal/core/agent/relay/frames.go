package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Constants of HTTP/2 frames (RFC 9113, section 6):
const (
	dataFrame, headersFrame, resetFrame, windowFrame = 0, 1, 3, 8
	endStream, padded                                = 1, 8 // flags

	frameHead   = 9  // bytes
	prefaceSize = 24 // bytes that a client sends before its first frame
	messageHead = 5  // bytes before a gRPC message: a flag and the length
)

// frames reads gRPC messages from one direction of an HTTP/2 connection whose bytes are copied
// unchanged. It needs only the payloads of DATA frames and decodes no headers. Envoy uses one
// stream at a time, so only the newest stream is read, and one message is buffered.
type frames struct {
	skip    int                           // bytes that precede the first frame and are still unread
	limit   int                           // maximum size of a message
	message func(stream uint32, m []byte) // the function may keep m
	ended   func(stream uint32)           // the sender ended the stream; the frame's last bytes may still be unread

	head    []byte   // header of the current frame, as far as it has arrived
	left    int      // bytes of the current frame's payload that are still unread
	padding int      // bytes at the end of the payload; -1: the next byte contains their number
	newest  uint32   // ID of the newest stream
	partial []byte   // the incomplete message of the newest stream, with its gRPC prefix
	kept    bool     // the caller keeps the bytes that it passes to read, so that a message can be changed in them
	pieces  [][]byte // parts of the bytes passed to read that make up partial, since kept is set
	err     error    // nothing is read after an error
}

// read parses the next bytes. It stores the first error in err.
func (f *frames) read(p []byte) {
	for len(p) > 0 && f.err == nil {
		var n int
		switch {
		case f.skip > 0:
			n = min(f.skip, len(p))
			f.skip -= n
		case len(f.head) < frameHead:
			n = min(frameHead-len(f.head), len(p))
			if f.head = append(f.head, p[:n]...); len(f.head) == frameHead {
				f.begin()
			}
		default:
			n = min(f.left, len(p))
			f.payload(p[:n])
		}
		p = p[n:]
	}
}

func (f *frames) size() int         { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }
func (f *frames) kind() byte        { return f.head[3] }
func (f *frames) flag(is byte) bool { return f.head[4]&is != 0 }
func (f *frames) stream() uint32    { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// begin reads a frame's header.
func (f *frames) begin() {
	f.left = f.size()
	f.padding = 0
	if f.kind() == dataFrame && f.flag(padded) {
		f.padding = -1
	}
	if f.left == 0 {
		f.end()
	}
}

// payload reads part of a frame's payload, at most f.left bytes.
func (f *frames) payload(p []byte) {
	f.left -= len(p)
	if f.kind() == dataFrame {
		if f.padding < 0 {
			f.padding, p = int(p[0]), p[1:]
			if f.padding > f.left+len(p) {
				f.err = errors.New("a frame with more padding than payload")
				return
			}
		}
		f.data(p[:max(0, len(p)-max(0, f.padding-f.left))])
	}
	if f.left == 0 && f.err == nil {
		f.end()
	}
}

// data reads message bytes of the current frame's stream.
func (f *frames) data(p []byte) {
	switch id := f.stream(); {
	case id < f.newest:
		return
	case id > f.newest:
		f.newest, f.partial, f.pieces = id, nil, nil
	}
	for len(p) > 0 && f.err == nil {
		n := min(f.missing(), len(p))
		if f.partial = append(f.partial, p[:n]...); f.kept {
			f.pieces = append(f.pieces, p[:n])
		}
		p = p[n:]
		missing := f.missing()
		switch {
		case f.err != nil:
			return
		case missing == 0:
			f.message(f.newest, f.partial[messageHead:])
			f.partial, f.pieces = nil, nil
		case len(f.partial) == messageHead:
			f.partial = slices.Grow(f.partial, missing)
		}
	}
}

// missing returns the number of bytes that the message's gRPC prefix lacks. If the prefix is complete, it
// returns the number of bytes that the message lacks.
func (f *frames) missing() int {
	if len(f.partial) < messageHead {
		return messageHead - len(f.partial)
	}
	n := binary.BigEndian.Uint32(f.partial[1:])
	switch {
	case f.partial[0] != 0:
		f.err = errors.New("a compressed message")
	case uint64(n) > uint64(f.limit):
		f.err = fmt.Errorf("a message of %d bytes; %d is the limit", n, f.limit)
	default:
		return messageHead + int(n) - len(f.partial)
	}
	return 0
}

func (f *frames) end() {
	if f.kind() == resetFrame || f.flag(endStream) && (f.kind() == dataFrame || f.kind() == headersFrame) {
		f.ended(f.stream())
	}
	f.head = f.head[:0]
}

// keep sets whether the caller keeps the bytes that it passes to read.
func (f *frames) keep(kept bool) { f.kept = kept }

// give ends the changes of the incomplete message: the caller has given its bytes away.
func (f *frames) give() { f.pieces = nil }

// first returns the place of the incomplete message's first byte that is kept; nil: there is none.
func (f *frames) first() *byte {
	if len(f.pieces) == 0 {
		return nil
	}
	return &f.pieces[0][0]
}

// editable reports whether all bytes of the message are kept.
func (f *frames) editable() bool {
	size := 0
	for _, p := range f.pieces {
		size += len(p)
	}
	return size == len(f.partial)
}

// set changes a byte of the message, counted without its gRPC prefix, where it is kept.
func (f *frames) set(at int, to byte) {
	at += messageHead
	for _, p := range f.pieces {
		if at < len(p) {
			p[at] = to
			return
		}
		at -= len(p)
	}
}
