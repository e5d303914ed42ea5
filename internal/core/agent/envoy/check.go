package envoy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A FieldError reports an option with an unusable value.
type FieldError struct {
	Field   string // for example "Node.ID"
	Problem string
	Want    string // what would be valid
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Want }

// Check returns all errors joined, each a [*FieldError]; nil if there is none. Package config has
// already checked levels, numbers, statistics and ports.
func (o Options) Check() error {
	o = o.withDefaults()
	err := errors.Join(checkText("Node.ID", o.Node.ID), checkText("Node.Cluster", o.Node.Cluster))
	if err == nil {
		_, err = o.merged()
	}
	return err
}

// checkText requires printable UTF-8 on one line.
func checkText(field, s string) error {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil
	}
	return &FieldError{Field: field, Problem: fmt.Sprintf("%q has bytes that are no printable UTF-8", s), Want: "write plain text"}
}
