// Package buffer provides a buffer for concurrent reads and writes, for the output of a process or
// a log in a test.
package buffer

import (
	"bytes"
	"sync"
)

// A Buffer stores all writes. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns everything written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
