package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"outrider.dev/internal/base/cli/visible"
)

// A Progress shows the progress of a command. Each step gets a line, so that a log contains all of them. On
// a terminal, the line that says what a step waits for is redrawn in place.
type Progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	columns  int
	last     string
	drawn    bool // the next write replaces the last line
}

// NewProgress returns a progress that writes to w, which may be a terminal.
func NewProgress(w io.Writer) *Progress {
	t := TerminalOf(w)
	p := &Progress{w: w, columns: t.Columns}
	if t.Colour { // only then does the terminal surely understand escape sequences
		p.w, p.terminal = visible.Unwrap(w), true
	}
	return p
}

// Step reports a completed step.
func (p *Progress) Step(format string, args ...any) { p.write(false, fmt.Sprintf(format, args...)) }

// Wait reports what the command waits for now. It does not repeat the same text.
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
	if line := []rune(text); len(line) >= p.columns { // a line that wraps could not be redrawn
		text = string(line[:p.columns-1])
	}
	io.WriteString(p.w, text)
}

// End finishes a line that would be redrawn, so that later output begins on a new line.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		io.WriteString(p.w, "\n")
	}
	p.drawn = false
}
