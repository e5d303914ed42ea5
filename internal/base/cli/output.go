package cli

import (
	"fmt"
	"strings"
)

// An Output is the format in which a command writes its result.
type Output string

const (
	Text Output = "text"
	JSON Output = "json"
)

// Set accepts "text" and "json".
func (o *Output) Set(s string) error {
	switch Output(s) {
	case Text, JSON:
		*o = Output(s)
		return nil
	}
	return fmt.Errorf("--output=%q: one of text, json", s)
}

func (o *Output) String() string { return string(*o) }

// Type names the type in a usage text.
func (o *Output) Type() string { return "string" }

// Few joins the elements of a list with commas. Of more than five elements it returns the first five and the
// number of the others, as in "a, b, c, d, e and 3 more".
func Few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
