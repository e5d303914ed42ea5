// Package mask removes secrets from texts and objects before they are shown or sent: values of variables, fields
// and flags whose names look secret, tokens, private keys, headers, passwords in URLs, and keys of well-known
// services. If it is uncertain, it masks. To be fast, it runs a regular expression only at a name or at the
// beginning of a token.
//
// It does not find a secret that has neither a known format nor a name that looks secret.
package mask

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Masked is the text that replaces a secret.
const Masked = "(masked)"

// stamp matches the timestamp at the beginning of a line of a log.
const stamp = `(?:\d{4}-\d\d-\d\dT\S+[ \t])?`

// privateKeys match private keys in PEM, in the SSH2 format and in the PuTTY format. In PEM, line breaks may be
// written as "\n". The beginning or the end of a key may be missing.
var privateKeys = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|\z)|Private-Lines:.*?(?:Private-(?:MAC|Hash)[^\n]*|\z)`),
	regexp.MustCompile(`(?:` + stamp + `[A-Za-z0-9+/=\\]+\s+)*` + stamp + `[A-Za-z0-9+/=\\]*-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}`),
}

// variable matches names of environment variables and headers whose values are secret. Names of other fields with
// the same words usually mean a reference to a secret.
var variable = regexp.MustCompile(`(?i)(?:^|[_.-])(?:pass|key|auth|cert|dsn|salt|cookie)(?:$|[_.-])`)

// noSecrets are fields of Kubernetes and of the chart whose name contains a secret word, but whose value is
// the name of an object, a number or a switch.
var noSecrets = []string{"secretName", "imagePullSecrets", "imagePullSecret", "secrets", "automountServiceAccountToken", "serviceAccountToken", "tokenExpirationSeconds", "secretKeyRef", "secretRef"}

// refers are the fields of an object that refer to a secret or describe it, and are not secret themselves.
var refers = strings.Fields("apiGroup apiVersion audience defaultMode description enum expirationSeconds fieldPath format group items key kind mode name namespace optional path pattern required secretName title type uid version")

// privateJWK are the secret fields of a JSON Web Key.
var privateJWK = strings.Fields("d dp dq k p q qi")

// A Masker removes secrets from texts and objects. It remembers the secret values in the fields of an object, and
// also masks them in later texts, for example in the logs of the same pod.
type Masker struct{ values []string }

// minValue is the minimum length of a value that is remembered and masked wherever it occurs. Shorter values,
// such as "true", also occur where they are not secret.
const minValue = 8

func (m *Masker) learn(value string) string {
	if i, found := slices.BinarySearchFunc(m.values, value, longest); !found && len(value) >= minValue && !strings.Contains(value, Masked) {
		m.values = slices.Insert(m.values, i, value)
	}
	return Masked
}

// longest sorts longer values first, so that a value which contains another one is masked as a whole.
func longest(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }

// Text masks a text, such as a log. Masking the result again does not change it.
func (m *Masker) Text(b []byte) []byte {
	for _, v := range m.values {
		b = bytes.ReplaceAll(b, []byte(v), []byte(Masked))
	}
	b = plain(b)
	// Repeat until nothing changes, because a secret may be recognised only after another one has been masked.
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

// Value masks a JSON value in place.
func (m *Masker) Value(v any) any {
	// The second call masks a secret that occurs in a field before the one in which it was recognised.
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
	if value, ok := o["value"]; ok && (secretField(name) != no || variable.MatchString(name)) { // an environment variable or a header of a probe
		o["value"] = m.whole(value, name)
	}
	command, _ := o["command"].([]any)
	for key, v := range o { // any order: each field is masked independently
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

// whole masks all texts in a value whose name is secret. It masks a number only if the name means the secret
// itself, not for example its length or lifetime.
func (m *Masker) whole(v any, name string) any {
	switch v := v.(type) {
	case string:
		switch {
		case v == "":
			return v
		case wordsOnly.MatchString(v) && strings.HasSuffix(strings.ToLower(name), "secret"): // perhaps the name of a Secret, which other texts may contain, so do not remember it
			return Masked
		}
		return m.learn(v)
	case json.Number, float64:
		if itself.MatchString(name) && !strings.HasSuffix(strings.ToLower(name), "tokens") { // such as maxTokens
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

// list masks the elements of a list. It scans them together, as the words of a command, so that the word after a
// flag such as --password is masked. before is the part of the command before the list.
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
		case flag && !slices.ContainsFunc(own, func(s span) bool { return s.from == 0 }): // mask the whole word, including spaces
			text = m.learn(text)
		case len(own) == 0:
			text = string(cover([]byte(text), parts))
		}
		all[i] = m.string(text)
		from = to + 1
	}
	return all
}

// joined returns the texts of a list, each followed by a space.
func joined(all []any) string {
	var b strings.Builder
	for _, v := range all {
		text, _ := v.(string)
		b.WriteString(text + " ")
	}
	return b.String()
}

// string masks a text. JSON in a text, as in some annotations, is masked as an object and stays valid JSON.
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

// Line masks one line of text, without values that were found earlier.
func Line(line []byte) []byte { return new(Masker).Text(line) }
