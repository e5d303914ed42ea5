package supervise

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// Bounds of what is kept of a child's output, whatever it writes.
const (
	lineLimit = 16 << 10 // a longer line is cut; its rest is thrown away
	keptLimit = 8 << 10  // of each line that is kept: Envoy's longest reasons fit
	tailLimit = 64 << 10 // of all lines that are kept
)

// A tail is the last lines of a child.
type tail struct {
	mu    sync.Mutex
	lines []string
	bytes int
	max   int
}

func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := string(line[:min(len(line), keptLimit)])
	t.lines, t.bytes = append(t.lines, kept), t.bytes+len(kept)
	for len(t.lines) > t.max || t.bytes > tailLimit {
		t.bytes -= len(t.lines[0])
		t.lines[0] = ""
		t.lines = t.lines[1:]
	}
}

func (t *tail) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}

// eachLine calls f for every line of r, without its end, until r ends. The last one may
// have none.
func eachLine(r io.Reader, f func([]byte)) {
	in := bufio.NewReaderSize(r, lineLimit)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if n := len(line); n > 0 {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			f(line)
		}
		for long {
			_, err = in.ReadSlice('\n')
			long = errors.Is(err, bufio.ErrBufferFull)
		}
		if err != nil {
			return
		}
	}
}
