package podspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"outrider.dev/internal/misfit"
)

// notYAML is why a text is none, for people who did not write a parser.
func notYAML(text []byte, err error) string {
	reason := yamlReason(err)
	keys := strings.HasPrefix(reason, "invalid map key")
	switch {
	case bytes.Contains(text, []byte("{{")) && keys:
		return "{{ }} is a template's: render it first, as by helm template"
	case bytes.Contains(text, []byte("{{")):
		return reason + "; {{ }} is a template's: render it first, as by helm template"
	case keys:
		return "a key is no text"
	}
	return reason
}

// typeError is the decoder's: what is there, the field, and the type of Go that it has.
var typeError = regexp.MustCompile(`cannot unmarshal (\w+).* into Go (?:struct field \w*\.(\S+)|value) of type (\S+)$`)

// mismatch is the field of a value that does not fit, and what would. The decoder leaves the
// indexes of lists out, so the value is looked for.
func mismatch(raw []byte, err error) (field string, reason error) {
	m := typeError.FindStringSubmatch(err.Error())
	if m == nil {
		return "", errors.New(yamlReason(err))
	}
	is, field, goType := m[1], m[2], m[3]
	var whole any
	if json.Unmarshal(raw, &whole) == nil && field != "" {
		if at, ok := misfit.Find(whole, field, is); ok {
			field = at
		}
	}
	return field, fmt.Errorf("want %s, and this is %s", wanted(goType, is), kinds[is])
}

// kinds are values of JSON in words, by the decoder's.
var kinds = map[string]string{"string": "a string", "number": "a number", "object": "an object", "array": "a list", "bool": "true or false"}

// wanted is a type of Go in words, where a value of that kind does not fit.
func wanted(goType, is string) string {
	switch {
	case goType == "[]string":
		return "a list of strings"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "string", strings.HasPrefix(goType, "v1.") && is == "object":
		return "a string"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "map["), is == "string":
		return "an object"
	}
	return "an object or a string"
}
