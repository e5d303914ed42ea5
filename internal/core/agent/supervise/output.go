package supervise

import (
	"bytes"
	"io"
)

// Bounds of the part of a child's output that is kept. A crash of Envoy prints the cause first, then
// 64 stack frames and some 30 lines for each request and message in progress.
const (
	lineLimit = 16 << 10 // a longer line is cut
	keptLimit = 8 << 10  // stored part of each line: Envoy's longest error messages fit
	tailLines = 400
	tailLimit = 64 << 10 // of all stored lines
)

// An output splits what a child writes into lines and keeps the last ones.
type output struct {
	line  func([]byte) // nil: lines are not passed on
	part  []byte       // the line that has not ended yet
	last  []string
	bytes int // total length of the lines in last
}

// ReadFrom reads with a small buffer: io.Copy would keep 32 KiB for the whole life of the child.
func (o *output) ReadFrom(r io.Reader) (int64, error) {
	type reader struct{ io.Reader }
	type writer struct{ io.Writer } // with other methods, CopyBuffer would not use the buffer
	return io.CopyBuffer(writer{o}, reader{r}, make([]byte, 4<<10))
}

func (o *output) Write(b []byte) (int, error) {
	for rest := b; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		o.part = append(o.part, line[:min(len(line), lineLimit-len(o.part))]...)
		if !ended {
			return len(b), nil
		}
		o.end()
		rest = after
	}
}

// flush completes the last line if it does not end with a newline.
func (o *output) flush() {
	if len(o.part) > 0 {
		o.end()
	}
}

func (o *output) end() {
	if o.line != nil {
		o.line(o.part)
	}
	kept := string(o.part[:min(len(o.part), keptLimit)])
	o.last, o.bytes = append(o.last, kept), o.bytes+len(kept)
	for len(o.last) > tailLines || o.bytes > tailLimit {
		o.bytes -= len(o.last[0])
		o.last = o.last[1:]
	}
	o.part = o.part[:0]
}
