package why

import (
	"regexp"
	"strings"
)

// choices match lists of what would be right, or help: the message is long for them, and they do not say what is wrong.
var choices = regexp.MustCompile(`(?i) ?[(\[](?:valid|known|supported|allowed|possible|available|accepted|expected|permitted|did you mean|see|use)\b[^()]{40,}[)\]]*$|, expected one of .{40,}$|\. (?:use|try|see|please|for more|read more|if you|did you mean|you (?:can|must|should)) .{20,}$`)

// Cut returns a text in one line, of a number of characters at most. Of a long text it returns the beginning and the part
// with the reason: an error that others wrap names its cause last, but a list of what would be right, or help, may follow.
func Cut(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len([]rune(text)) > most {
		if short := choices.ReplaceAllString(text, ""); len(short) > 20 {
			text = short
		}
	}
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	head, room := most*2/5, most*3/5-3
	from := len(r) - room
	if at := reasonIn(text); at >= 0 && at < from {
		from = at
	}
	if from <= head { // the reason is at the beginning
		return whole(r[:most-2], false) + " …"
	}
	tail, end := r[from:], ""
	if len(tail) > room {
		tail, end = tail[:room-2], " …"
	}
	return whole(r[:head], false) + " … " + whole(tail, r[from-1] != ' ') + end
}

// whole returns a part of a text without the word that was cut: the last, or the first one.
func whole(part []rune, first bool) string {
	text := string(part)
	if i := strings.LastIndexByte(text, ' '); !first && i > len(text)/2 {
		return text[:i]
	}
	if i := strings.IndexByte(text, ' '); first && i >= 0 && i < len(text)/2 {
		return text[i+1:]
	}
	return text
}

// reasonIn returns the number of characters before the part of a text that has a reason of the table; -1: none.
func reasonIn(text string) int {
	for i := range classes {
		if at := classes[i].form.FindStringIndex(text); at != nil {
			before := text[:at[0]]
			if part := strings.LastIndex(before, ": "); part >= 0 && len(before)-part < 60 {
				before = before[:part+2]
			}
			return len([]rune(before))
		}
	}
	return -1
}
