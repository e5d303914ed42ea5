package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"outrider.dev/internal/base/cli/visible"
)

// A Progress shows how far a command is: a line for each step, so that a log has all of them. On
// a terminal what a step waits for is one line that is drawn again.
type Progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	columns  int
	last     string
	drawn    bool // the last line is to be replaced
}

// NewProgress returns a progress that writes to w, as it comes from a command: behind it is a
// terminal, or not.
func NewProgress(w io.Writer) *Progress {
	t := TerminalOf(w)
	p := &Progress{w: w, columns: t.Columns}
	if t.Colour { // only there is it known that a terminal understands a sequence
		p.w, p.terminal = visible.Unwrap(w), true
	}
	return p
}

// Step is something that was done.
func (p *Progress) Step(format string, args ...any) { p.write(false, fmt.Sprintf(format, args...)) }

// Wait is what the command waits for now. The same text again is not written.
func (p *Progress) Wait(format string, args ...any) { p.write(true, fmt.Sprintf(format, args...)) }

func (p *Progress) write(again bool, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text = visible.Plain(strings.ReplaceAll(text, "\n", " "))
	if text == p.last {
		return
	}
	p.last = text
	const clear = "\r\x1b[K"
	if p.drawn {
		io.WriteString(p.w, clear)
	}
	p.drawn = again && p.terminal
	if !p.drawn {
		io.WriteString(p.w, text+"\n")
		return
	}
	if line := []rune(text); len(line) >= p.columns { // a line that wraps could not be replaced
		text = string(line[:p.columns-1])
	}
	io.WriteString(p.w, text)
}

// End ends a line that would be drawn again; what is written after it has its own.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		io.WriteString(p.w, "\n")
	}
	p.drawn = false
}
