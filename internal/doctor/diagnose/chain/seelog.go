package chain

import (
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// SeeLog returns the remedy for the end of a run of which nothing but its log can tell why: the command that prints the
// log, if it is not among the evidence. Its reader gets what a log says that is, and no command.
func (c *Case) SeeLog(container string, run int) finding.Remedy {
	if c.Container(container).Log(run) == nil {
		return finding.Remedy{Command: c.Kubectl("%s", c.Logs(container, run))}
	}
	for _, t := range c.Tails {
		switch {
		case t.Container != container || t.Run != run:
		case len(t.Lines) == 0:
			return finding.Remedy{Sentence: "its log is empty: have the program write why it ends to its standard error"}
		default:
			return finding.Remedy{Sentence: "its log does not say why: have the program write that, or let it log more"}
		}
	}
	return finding.Remedy{}
}

// ToldOf returns what a run says of its end, in its log or, if that says nothing, in its termination message.
func (c *Case) ToldOf(container string, r evidence.Run) (told evidence.Told, byMessage, says bool) {
	if told, says = c.Reason(container, r.Number); says {
		return told, false, true
	}
	told, says = evidence.ToldBy(container, r, c.ShowSecrets)
	return told, says, says
}

// mostOfRemedy is the largest number of characters of a log's line in a remedy. The finding quotes the whole line.
const mostOfRemedy = 120

// Short returns a line of a log for a sentence about it.
func Short(line string) string { return why.Cut(line, mostOfRemedy) }

// SaysOf returns what the log of the last run of a container says at its end, in words for a sentence, with the lines: its last
// error, for which it returns what is to be done, or else its last line. It returns nothing if there is no log.
func (c *Case) SaysOf(container string) (says, remedy string, quotes []evidence.Quote) {
	of := c.Container(container)
	if of == nil || of.Last() == nil {
		return "", "", nil
	}
	if told, is := c.Reason(container, of.Last().Number); is {
		return "its log says: " + told.Text, why.Remedy(told.Text), told.Quotes
	}
	if quotes = c.LastLines(container, of.Last().Number, QuotedLines); len(quotes) > 0 {
		says = "its log ends with: " + Short(why.Say(quotes[len(quotes)-1].Text))
	}
	return says, "", quotes
}

// QuotedLines is the number of last lines of a log that a finding quotes if no line tells why.
const QuotedLines = 3
