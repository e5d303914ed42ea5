// Package mask takes secrets out of texts and objects that are shown or handed on: values of
// variables, fields and flags whose names look secret, tokens, private keys, headers, passwords in
// URLs, and keys of well-known services. It rather masks too much.
//
// A secret that neither its form nor its name tells stays.
package mask

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Masked stands where a secret was.
const Masked = "(masked)"

// A rule masks what it matches, up to its first group, which stays. It is tried on lines that have
// one of the hints, in small letters: that is much faster.
type rule struct {
	hints []string
	match *regexp.Regexp
	with  string
}

// secretWord is in the name of what is secret.
const secretWord = `(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|api[-_.]?key|private[-_.]?key|access[-_.]?key|signing[-_.]?key|encryption[-_.]?key)`

// named begins what a secret's name leads to.
const named = `[\w.-]*` + secretWord + `[\w.-]*\\?["']?[ \t]*[:=][ \t]*`

// stamp is the time before each line of a log.
const stamp = `\d{4}-\d\d-\d\dT\S+[ \t]`

// words are in what secretWord matches.
var words = []string{"passw", "passphrase", "pwd", "secret", "token", "credential", "key"}

// privateKeys are in PEM, also with "\n" for the ends of lines; of some one end was cut off.
var privateKeys = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|\z)`),
	regexp.MustCompile(`(?:(?:` + stamp + `)?[A-Za-z0-9+/=\\]+\s+)*(?:` + stamp + `)?[A-Za-z0-9+/=\\]*-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----`),
}

// rules are for lines of any text. They rather mask too much.
var rules = []rule{
	// JSON Web Tokens, signed or encrypted.
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){2,4}`), Masked},
	// Headers, as HTTP, JSON, YAML and Envoy's log write them.
	{[]string{"authorization", "api-key", "auth-token", "cookie", "bearer", "basic"}, regexp.MustCompile(`(?i)((?:authorization|x-api-key|x-auth-token|set-cookie|cookie)\\?["']?[ \t]*[:=,][ \t]*\\?["']?)[^"'\r\n]+`), "${1}" + Masked},
	{[]string{"authorization", "api-key", "auth-token", "cookie", "bearer", "basic"}, regexp.MustCompile(`(?i)\b((?:bearer|basic)[ \t]+)[A-Za-z0-9._~+/=-]{6,}`), "${1}" + Masked},
	// User and password of a URL.
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/"'<>]+@`), "${1}" + Masked + "@"},
	// name=value, name: value, "name": "value", --name value. Quotes stay.
	{words, regexp.MustCompile(`(?i)(` + named + `\\?")(?:[^"\\]|\\[^"])+`), "${1}" + Masked},
	{words, regexp.MustCompile(`(?i)(` + named + `')[^']+`), "${1}" + Masked},
	{words, regexp.MustCompile(`(?i)(` + named + `)[^\s,;&"'}\])\\({\[][^\s,;&"'}\])]*`), "${1}" + Masked},
	{words, regexp.MustCompile(`(?i)(--?[\w-]*` + secretWord + `[\w-]*[ \t]+)(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`), "${1}" + Masked},
	// Keys of well-known services, by their form.
	{[]string{"gh", "glpat", "xox", "akia", "asia"}, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16})\b`), Masked},
}

// Names: those of variables and headers, whose value is a text of the author's; and those of other
// fields, of which many name a Secret and have none.
var (
	secretVariable = regexp.MustCompile(`(?i)` + secretWord + `|(?:^|[_.-])(?:pass|key|auth|cert|dsn|salt|cookie)(?:$|[_.-])|authorization`)
	secretField    = regexp.MustCompile(`(?i)` + secretWord + `|^authorization$`)
	secretFlag     = regexp.MustCompile(`(?i)^--?[\w-]*` + secretWord + `[\w-]*$`)
)

// noSecrets are fields of Kubernetes and of the chart that have such a word in their name, and the
// name of an object, a number or a switch as value.
var noSecrets = []string{"secretName", "imagePullSecrets", "imagePullSecret", "secrets", "automountServiceAccountToken", "serviceAccountToken", "tokenExpirationSeconds", "secretKeyRef", "secretRef"}

// A Masker takes secrets out of texts and objects. The values that it has found in the fields of an
// object it takes out of the texts that come later too, such as the logs of that pod.
type Masker struct{ values []string }

// minValue is the shortest value that is masked wherever it stands: "true" is everywhere.
const minValue = 8

func (m *Masker) learn(value string) string {
	if len(value) >= minValue && !slices.Contains(m.values, value) {
		m.values = append(m.values, value)
	}
	return Masked
}

// Text masks a text, such as a log.
func (m *Masker) Text(b []byte) []byte {
	for _, v := range m.values {
		b = bytes.ReplaceAll(b, []byte(v), []byte(Masked))
	}
	if bytes.Contains(b, []byte("PRIVATE KEY")) {
		for _, r := range privateKeys {
			b = r.ReplaceAll(b, []byte(Masked))
		}
	}
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		small := string(bytes.ToLower(line))
		for _, r := range rules {
			if slices.ContainsFunc(r.hints, func(h string) bool { return strings.Contains(small, h) }) {
				line = r.match.ReplaceAll(line, []byte(r.with))
			}
		}
		out.Write(line)
	}
	return out.Bytes()
}

// Value masks a value of JSON, in place.
func (m *Masker) Value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return m.object(v)
	case []any:
		return m.list(v)
	case string:
		return m.string(v)
	}
	return v
}

func (m *Masker) object(o map[string]any) map[string]any {
	if name, ok := o["name"].(string); ok && secretVariable.MatchString(name) { // a variable, or a header of a probe
		if value, ok := o["value"].(string); ok && value != "" {
			o["value"] = m.learn(value)
		}
	}
	for key, v := range o { // any order: each field is masked by itself
		if secretField.MatchString(key) && !slices.Contains(noSecrets, key) {
			o[key] = m.whole(v)
			continue
		}
		o[key] = m.Value(v)
	}
	return o
}

// whole masks each text of a value whose name says that it is secret.
func (m *Masker) whole(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return v
		}
		return m.learn(v)
	case []any:
		for i := range v {
			v[i] = m.whole(v[i])
		}
	case map[string]any:
		return m.object(v) // with fields of their own names: a reference has no secret
	}
	return v
}

// list masks the elements; the one after a flag such as --password too.
func (m *Masker) list(all []any) []any {
	for i, v := range all {
		flag, isText := "", false
		if i > 0 {
			flag, isText = all[i-1].(string)
		}
		if value, ok := v.(string); ok && isText && secretFlag.MatchString(flag) && !strings.HasPrefix(value, "-") {
			all[i] = m.learn(value)
			continue
		}
		all[i] = m.Value(v)
	}
	return all
}

// string masks a text; one that is an object in JSON, as annotations are that keep an object, stays
// one.
func (m *Masker) string(s string) string {
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		var v any
		d := json.NewDecoder(strings.NewReader(t))
		d.UseNumber()
		if d.Decode(&v) == nil && !d.More() {
			if out, err := json.Marshal(m.Value(v)); err == nil {
				return string(out)
			}
		}
	}
	return string(m.Text([]byte(s)))
}

// Line masks one line of text.
func Line(line []byte) []byte { return new(Masker).Text(line) }
