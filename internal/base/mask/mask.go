// Package mask takes secrets out of texts and objects that are shown or handed on: values of
// variables, fields and flags whose names look secret, tokens, private keys, headers, passwords in
// URLs, and keys of well-known services. It rather masks too much. A text is masked in one pass; a
// regular expression is run only where a name or the beginning of a token stands.
//
// A secret that neither its form nor its name tells stays.
package mask

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Masked stands where a secret was.
const Masked = "(masked)"

// stamp is the time before each line of a log.
const stamp = `(?:\d{4}-\d\d-\d\dT\S+[ \t])?`

// privateKeys are in PEM, also with "\n" for the ends of lines, in the format of SSH2, and in that of PuTTY; of some one end was cut off.
var privateKeys = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|\z)|Private-Lines:.*?(?:Private-(?:MAC|Hash)[^\n]*|\z)`),
	regexp.MustCompile(`(?:` + stamp + `[A-Za-z0-9+/=\\]+\s+)*` + stamp + `[A-Za-z0-9+/=\\]*-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}`),
}

// variable is a word of a variable's or header's name whose value is a text of the author's; other fields with it refer to
// something.
var variable = regexp.MustCompile(`(?i)(?:^|[_.-])(?:pass|key|auth|cert|dsn|salt|cookie)(?:$|[_.-])`)

// noSecrets are fields of Kubernetes and of the chart that have such a word in their name, and the
// name of an object, a number or a switch as value.
var noSecrets = []string{"secretName", "imagePullSecrets", "imagePullSecret", "secrets", "automountServiceAccountToken", "serviceAccountToken", "tokenExpirationSeconds", "secretKeyRef", "secretRef"}

// refers are the fields by which a value says where a secret is, or what it looks like.
var refers = strings.Fields("apiGroup apiVersion audience defaultMode description enum expirationSeconds fieldPath format group items key kind mode name namespace optional path pattern required secretName title type uid version")

// privateJWK are the secret fields of a key in JSON.
var privateJWK = strings.Fields("d dp dq k p q qi")

// A Masker takes secrets out of texts and objects. The values that it has found in the fields of an
// object it takes out of the texts that come later too, such as the logs of that pod.
type Masker struct{ values []string }

// minValue is the shortest value that is masked wherever it stands: "true" is everywhere.
const minValue = 8

func (m *Masker) learn(value string) string {
	if i, found := slices.BinarySearchFunc(m.values, value, longest); !found && len(value) >= minValue && !strings.Contains(value, Masked) {
		m.values = slices.Insert(m.values, i, value)
	}
	return Masked
}

// longest orders values so that none is masked as a part of another.
func longest(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }

// Text masks a text, such as a log. What it returns stays as it is when it is masked again.
func (m *Masker) Text(b []byte) []byte {
	for _, v := range m.values {
		b = bytes.ReplaceAll(b, []byte(v), []byte(Masked))
	}
	b = plain(b)
	// Without a secret the text is another one, in which the next may show.
	for range 100 {
		for _, keys := range privateKeys {
			if bytes.Contains(b, []byte("PRIVATE KEY")) || bytes.Contains(b, []byte("Private-Lines:")) {
				b = keys.ReplaceAll(b, []byte(Masked))
			}
		}
		next := cover(b, scan(b))
		if bytes.Equal(next, b) {
			break
		}
		b = next
	}
	return b
}

// Value masks a value of JSON, in place.
func (m *Masker) Value(v any) any {
	// A secret that is recognised in the last field may stand in the first one too.
	return m.value(m.value(v))
}

func (m *Masker) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return m.object(v)
	case []any:
		return m.list(v, "")
	case string:
		return m.string(v)
	}
	return v
}

func (m *Masker) object(o map[string]any) map[string]any {
	name, ok := o["name"].(string)
	if !ok {
		name, _ = o["key"].(string)
	}
	if value, ok := o["value"]; ok && (secretField(name) != no || variable.MatchString(name)) { // a variable, or a header of a probe
		o["value"] = m.whole(value, name)
	}
	command, _ := o["command"].([]any)
	for key, v := range o { // any order: each field is masked by itself
		text, _ := v.(string)
		args, _ := v.([]any)
		secret := secretField(key)
		switch {
		case key == "name" || slices.Contains(noSecrets, key):
			o[key] = m.value(v)
		case secret == sure && (itself.MatchString(key) || !isObject(v)), secret == perhaps && text != "" && !wordsOnly.MatchString(text), random(text),
			key == "stringData", key == "data" && o["kind"] == "Secret", o["kty"] != nil && slices.Contains(privateJWK, key):
			o[key] = m.whole(v, key)
		case key == "args" && args != nil:
			o[key] = m.list(args, joined(command))
		default:
			o[key] = m.value(v)
		}
	}
	return o
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }

// whole masks each text of a value whose name says that it is secret; and each number, if the name is not that of a length or a time.
func (m *Masker) whole(v any, name string) any {
	switch v := v.(type) {
	case string:
		switch {
		case v == "":
			return v
		case wordsOnly.MatchString(v) && strings.HasSuffix(strings.ToLower(name), "secret"): // the name of one, perhaps: it may be in other names
			return Masked
		}
		return m.learn(v)
	case json.Number, float64:
		if itself.MatchString(name) && !strings.HasSuffix(strings.ToLower(name), "tokens") { // maxTokens
			digits, _ := json.Marshal(v)
			return m.learn(string(digits))
		}
	case []any:
		for i := range v {
			v[i] = m.whole(v[i], name)
		}
	case map[string]any:
		for key := range v {
			if slices.Contains(refers, key) {
				v[key] = m.value(v[key])
			} else {
				v[key] = m.whole(v[key], name)
			}
		}
	}
	return v
}

// list masks the elements, as the words of a command that begins with those before.
func (m *Masker) list(all []any, before string) []any {
	spans := scan([]byte(before + joined(all)))
	from := len(before)
	for i, v := range all {
		text, ok := v.(string)
		if !ok {
			all[i] = m.value(v)
			from++
			continue
		}
		own, to := scan([]byte(text)), from+len(text)
		var parts []span
		for _, s := range spans {
			if from <= s.from && s.from < to {
				parts = append(parts, span{s.from - from, min(s.to, to) - from})
			}
		}
		switch flag := slices.ContainsFunc(parts, func(s span) bool { return s.from == 0 }); {
		case flag && !slices.ContainsFunc(own, func(s span) bool { return s.from == 0 }): // its value, with all its spaces
			text = m.learn(text)
		case len(own) == 0:
			text = string(cover([]byte(text), parts))
		}
		all[i] = m.string(text)
		from = to + 1
	}
	return all
}

// joined are the texts of a list as one.
func joined(all []any) string {
	var b strings.Builder
	for _, v := range all {
		text, _ := v.(string)
		b.WriteString(text + " ")
	}
	return b.String()
}

// string masks a text; one that is an object in JSON, as annotations are that keep an object, stays
// one.
func (m *Masker) string(s string) string {
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		var v any
		d := json.NewDecoder(strings.NewReader(t))
		d.UseNumber()
		if d.Decode(&v) == nil && !d.More() {
			before, _ := json.Marshal(v)
			if out, err := json.Marshal(m.Value(v)); err == nil {
				if bytes.Equal(before, out) {
					return s
				}
				return string(out)
			}
		}
	}
	return string(m.Text([]byte(s)))
}

// Line masks one line of text.
func Line(line []byte) []byte { return new(Masker).Text(line) }
