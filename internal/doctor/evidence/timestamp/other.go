package timestamp

import (
	"bytes"
	"regexp"
	"slices"
	"unicode"
	"unicode/utf8"
)

// others are the words before the date of something else than the line: a program's build, the validity of a
// certificate, a record, a header of an HTTP message. A line that begins with them has no time of its own.
var others = wordSet("built build compiled release released buildtime revision commit modified expire expires expired expiry expiring valid validity notbefore notafter before after since until till created updated written saved stored last")

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range bytes.FieldsSeq([]byte(words)) {
		set[string(word)] = true
	}
	return set
}

// header matches the begin of a header of an HTTP message, as curl shows it too, before a date with its day of the week.
var header = regexp.MustCompile(`^(?:[<>*] )?[A-Za-z][A-Za-z-]*: *(?:[A-Z][a-z]{2}, *)?$`)

// aside matches what a program writes about a line before its time: in brackets, in quotes, and as fields.
var aside = regexp.MustCompile(`\[[^\]]*\]|"[^"]*"|\([^)]*\)|[\w.@-]+=\S*`)

// field matches the name of the field whose value comes next.
var field = regexp.MustCompile(`([\w.@-]+)="?$`)

// ending matches the end of a sentence that its time completes.
var ending = regexp.MustCompile(` (?:at|on):? \[?$`)

// mostBefore is the number of bytes before a stamp by which [ofOther] decides.
const mostBefore = reach

// ofOther reports whether a stamp is of something else that a line tells, by the text before it. A program writes its name,
// a level, a thread or fields before its time, and no sentence, but for one that ends with it, as Rails'
// Started GET "/" for ADDRESS at TIME.
func ofOther(before, behind []byte) bool {
	before = bytes.TrimLeft(before[max(len(before)-mostBefore, 0):], " ")
	if len(before) == 0 {
		return false
	}
	if m := field.FindSubmatch(before); m != nil {
		return !timeKeys[string(m[1])] && !slices.ContainsFunc([]string{"time", "Time", "ts", "stamp"}, func(end string) bool { return bytes.HasSuffix(m[1], []byte(end)) })
	}
	if h := header.Find(before); h != nil && bytes.IndexByte(h, ',') > 0 {
		return true
	}
	plain := 0 // words in small letters, as sentences have
	for word := range bytes.FieldsFuncSeq(aside.ReplaceAll(before, nil), notOfWord) {
		if others[string(bytes.ToLower(word))] {
			return true
		}
		first, _ := utf8.DecodeRune(word)
		switch {
		case first >= utf8.RuneSelf && unicode.IsLetter(first) && !bytes.HasSuffix(before, []byte(": ")):
			return true
		case len(word) > 1 && unicode.IsLower(first):
			plain++
		}
	}
	ends := len(bytes.Trim(behind, " .")) == 0 && ending.Match(before)
	return plain > 1 && !ends
}

// notOfWord reports whether a character separates words: what has a digit, a point or a stroke in it is a name and no word
// of a sentence.
func notOfWord(r rune) bool {
	return unicode.IsSpace(r) || r == '(' || r == ':' || r == ',' || r == '"' || r == '\''
}
