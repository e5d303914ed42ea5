// Package buffer has a buffer that one may write to while another reads: what a process or
// a log says, for a test.
package buffer

import (
	"bytes"
	"sync"
)

// A Buffer keeps what is written to it. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is what was written until now.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
