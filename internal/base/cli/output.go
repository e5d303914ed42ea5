package cli

import (
	"fmt"
	"strings"
)

// An Output is the format in which a command writes its result.
type Output string

// The outputs.
const (
	Text Output = "text"
	JSON Output = "json"
)

// Set parses the name of an output.
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

// Few returns the first elements of a list, and the number of the others.
func Few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
