package cli

import (
	"fmt"
	"strings"
)

// An Output is how a command writes its result.
type Output string

// The outputs.
const (
	Text Output = "text"
	JSON Output = "json"
)

// Set reads an output's name.
func (o *Output) Set(s string) error {
	switch Output(s) {
	case Text, JSON:
		*o = Output(s)
		return nil
	}
	return fmt.Errorf("--output=%q: one of text, json", s)
}

func (o *Output) String() string { return string(*o) }

// Type is the word for the value in a usage text.
func (o *Output) Type() string { return "string" }

// Few names some of a list, and how many more there are.
func Few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
