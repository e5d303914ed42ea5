package chain

import (
	"fmt"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/evidence/why"
)

// mostOfRemedy is the largest number of characters of a log's line in a remedy. The finding quotes the whole line.
const mostOfRemedy = 120

// SeeLog returns the remedy for the end of a run of which nothing but its log can tell why. A log that is among the
// evidence was read already: its reader gets what it says, and no command.
func (c *Case) SeeLog(container string, run int) finding.Remedy {
	log := c.Container(container).Log(run)
	if log == nil {
		return finding.Remedy{Sentence: "see the end of its log", Command: c.Kubectl("%s", c.Logs(container, run))}
	}
	for _, t := range c.Tails {
		if t.Container != container || t.Run != run {
			continue
		}
		if len(t.Lines) == 0 {
			return finding.Remedy{Sentence: "its log is empty: have the program write why it ends to its standard error"}
		}
		return finding.Remedy{Sentence: fmt.Sprintf("its log ends with: %s; if that says too little, let the program log more", Short(why.Say(t.Lines[len(t.Lines)-1].Text)))}
	}
	return finding.Remedy{Sentence: "see the end of its log, " + log.Source.File}
}

// Short returns a line of a log for a sentence about it.
func Short(line string) string {
	if r := []rune(line); len(r) > mostOfRemedy {
		return string(r[:mostOfRemedy]) + "…"
	}
	return line
}
