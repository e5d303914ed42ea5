package cli

import (
	"strings"
	"testing"
)

func TestProgress(t *testing.T) {
	steps := func(p *Progress) {
		p.Wait("0 of 2")
		p.Wait("0 of 2")
		p.Wait("1 of 2, which is more than fits")
		p.Step("ready:\n\x1b[2Jall")
		p.Wait("more")
		p.End()
		p.End()
	}
	var log, terminal strings.Builder
	steps(NewProgress(&log))
	if want := "0 of 2\n1 of 2, which is more than fits\nready: \\x1b[2Jall\nmore\n"; log.String() != want {
		t.Errorf("in a log:\n%q\nwant\n%q", log.String(), want)
	}
	steps(&Progress{w: &terminal, terminal: true, columns: 10})
	const clear = "\r\x1b[K"
	if want := "0 of 2" + clear + "1 of 2, w" + clear + "ready: \\x1b[2Jall\n" + "more\n"; terminal.String() != want {
		t.Errorf("on a terminal:\n%q\nwant\n%q", terminal.String(), want)
	}
}
