package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"outrider.dev/internal/base/cli/visible"
)

// A Progress shows the progress of a command. Each step gets its own line, so that a log contains all steps. On a
// terminal, lines of [Progress.Wait] replace each other.
type Progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	columns  int
	last     string
	drawn    bool // the next write replaces the last line
}

// NewProgress returns a Progress that writes to w. Lines are replaced only if w is a terminal with colours.
func NewProgress(w io.Writer) *Progress {
	t := TerminalOf(w)
	p := &Progress{w: w, columns: t.Columns}
	if t.Colour { // without colours, the terminal may not support escape sequences at all
		p.w, p.terminal = visible.Unwrap(w), true
	}
	return p
}

// Step prints a completed step.
func (p *Progress) Step(format string, args ...any) { p.write(false, fmt.Sprintf(format, args...)) }

// Wait prints what the command waits for now. It prints nothing if the text is the same as before.
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

// End ends a line that the next call would replace, so that later output begins on a new line.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		io.WriteString(p.w, "\n")
	}
	p.drawn = false
}
