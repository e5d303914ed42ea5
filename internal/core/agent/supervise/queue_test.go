package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// blocked is a writer that blocks until it is released.
type blocked struct {
	bytes.Buffer
	released chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.released
	return b.Buffer.Write(p)
}

func TestQueuePassesLinesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		q := NewQueue(&out)
		for _, part := range []string{"a", "b\nc", "", "\n\nd\n", "not ended"} {
			if n, err := q.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("%q: %d, %v", part, n, err)
			}
		}
		q.Flush(time.Second)
		if got := out.String(); got != "ab\nc\n\nd\n" || q.Lost() != 0 {
			t.Errorf("%q, %d lost", got, q.Lost())
		}
	})
}

// A full queue drops whole lines; the reader gets the queued lines and the later ones.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &blocked{released: make(chan struct{})}
		q := NewQueue(out)
		const all, size = 5 * queueLimit / 100, 100
		for i := range all {
			line := fmt.Appendf(nil, "%0*d\n", size-1, i)
			q.Write(line[:50])
			q.Write(line[50:])
		}
		if got := cap(q.full); got > 2*queueLimit {
			t.Errorf("it keeps %d bytes", got)
		}
		before := time.Now()
		q.Flush(time.Second)
		if waited := time.Since(before); waited != time.Second {
			t.Errorf("it flushes for %s", waited)
		}
		close(out.released)
		q.Flush(time.Second)
		q.Write([]byte("later\n"))
		q.Flush(time.Second)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if uint64(len(lines)-1)+q.Lost() != all || q.Lost() == 0 || lines[len(lines)-1] != "later" {
			t.Errorf("%d lines, %d lost of %d, the last is %q", len(lines), q.Lost(), all, lines[len(lines)-1])
		}
		for i, line := range lines[:len(lines)-1] {
			if line != fmt.Sprintf("%0*d", size-1, i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	})
}

func TestQueueLosesALineThatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		q := NewQueue(&out)
		for range 3 {
			q.Write(bytes.Repeat([]byte("x"), lineLimit))
		}
		q.Write([]byte("its end\nshort\n"))
		q.Flush(time.Second)
		if got := out.String(); got != "short\n" || q.Lost() != 1 {
			t.Errorf("%q, %d lost", got, q.Lost())
		}
	})
}

func TestQueueWhoseReaderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		r.CloseWithError(errors.New("gone"))
		q := NewQueue(w)
		q.Write([]byte("a\nb\n"))
		q.Flush(time.Second)
		if q.Lost() != 2 {
			t.Errorf("%d lost", q.Lost())
		}
	})
}
