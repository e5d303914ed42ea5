package mask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLXBsYW50ZWQ"

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"connecting to postgres://shop:hunter2@db:5432/shop":             "connecting to postgres://(masked)@db:5432/shop",
		"> Authorization: Bearer abcdef123456":                           "> Authorization: (masked)",
		"DB_PASSWORD=hunter2 retrying":                                   "DB_PASSWORD=(masked) retrying",
		`{"password":"a\"b","user":"x"}`:                                 `{"password":"(masked)","user":"x"}`,
		"token " + jwt:                                                   "token (masked)",
		"-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----": "(masked)",
	} {
		if got := string(Line([]byte(in))); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

// planted are secrets of several kinds. The files in testdata contain @S@, which stands for each of them.
var planted = []string{"hunter2XyZ81qq", "Zq7-x_9Kp2", "12345678901", "aGVsbG86d29ybGQ=", "tr0ub4dor"}

// cases returns the lines of a file of testdata.
func cases(t testing.TB, name string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.NewReplacer("⏎", "\x00", "␛", "\x1b").Replace(string(text))) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			all = append(all, strings.ReplaceAll(line, "\x00", "\n"))
		}
	}
	return all
}

// masked returns an object, given in JSON, after masking.
func masked(t testing.TB, object string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	out, err := json.Marshal(new(Masker).Value(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestNoSecretIsLeft(t *testing.T) {
	for _, secret := range planted {
		for _, c := range cases(t, "secret.txt") {
			in := strings.ReplaceAll(c, "@S@", secret)
			once := Line([]byte(in))
			if bytes.Contains(once, []byte(secret)) {
				t.Errorf("%q shows it: %q", in, once)
			}
			if twice := Line(once); !bytes.Equal(once, twice) {
				t.Errorf("%q becomes %q, and then %q", in, once, twice)
			}
		}
		for _, c := range cases(t, "secret-objects.txt") {
			if got := masked(t, strings.ReplaceAll(c, "@S@", secret)); strings.Contains(got, secret) {
				t.Errorf("%s shows %s: %s", c, secret, got)
			}
		}
	}
	for in, secret := range map[string]string{
		`{"a":"12345678901 is tried","b":{"password":12345678901}}`: "12345678901",
		// The first secret is the beginning of the second.
		`{"a":"planted-x and planted-x-all","b":[{"name":"A_TOKEN","value":"planted-x"},{"name":"B_TOKEN","value":"planted-x-all"}]}`: "-all",
		// A random secret is recognised although the name is harmless.
		`{"env":[{"name":"A","value":"` + planted[0] + `"}]}`: planted[0],
	} {
		if got := masked(t, in); strings.Contains(got, secret) {
			t.Errorf("%s shows %s: %s", in, secret, got)
		}
	}
}

func TestWhatIsNoSecretStays(t *testing.T) {
	for _, in := range cases(t, "sane.txt") {
		if got := string(Line([]byte(in))); got != in {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	for _, in := range cases(t, "sane-objects.txt") {
		if got := masked(t, in); strings.Contains(got, Masked) {
			t.Errorf("%s becomes %s", in, got)
		}
	}
}

// testdata/corpus.txt lists the lines that are masked in the recorded incidents and in the pods of public charts,
// so that changes of the rules are seen. Each file is masked as a text and as an object.
func TestCorpus(t *testing.T) {
	var got []string
	note := func(file string, text []byte) {
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(Masked)) {
				got = append(got, filepath.Base(file)+": "+string(bytes.TrimSpace(line)))
			}
		}
	}
	for _, folder := range []string{"../../../testdata/incidents", "../../../test/corpus/testdata"} {
		err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			note(file, Line(text))
			for _, doc := range bytes.Split(text, []byte("\n---")) {
				var v map[string]any
				if filepath.Ext(file) == ".yaml" && yaml.Unmarshal(doc, &v) == nil {
					object, err := yaml.Marshal(new(Masker).Value(v))
					if err != nil {
						return err
					}
					note(file, object)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	if want := cases(t, "corpus.txt"); !slices.Equal(got, want) {
		t.Errorf("masked is\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// For each form, the shortest text that it matches is masked.
func TestForms(t *testing.T) {
	for line := range strings.Lines(forms) {
		begins, pattern, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || line[0] == '#' {
			continue
		}
		form, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		for choice := range 4 {
			if in := "x " + shortest(form, choice) + " y"; !bytes.Contains(Line([]byte(in)), []byte(Masked)) {
				t.Errorf("%s: %q stays", begins, in)
			}
		}
	}
}

// shortest returns a short text that matches r. choice selects the alternative.
func shortest(r *syntax.Regexp, choice int) string {
	switch r.Op {
	case syntax.OpLiteral:
		return string(r.Rune)
	case syntax.OpCharClass:
		for _, c := range "0aA" + string(r.Rune[0]) {
			for i := 0; i < len(r.Rune); i += 2 {
				if r.Rune[i] <= c && c <= r.Rune[i+1] {
					return string(c)
				}
			}
		}
	case syntax.OpAnyCharNotNL:
		return "."
	case syntax.OpRepeat:
		return strings.Repeat(shortest(r.Sub[0], choice), r.Min)
	case syntax.OpAlternate:
		return shortest(r.Sub[choice%len(r.Sub)], choice)
	case syntax.OpPlus, syntax.OpConcat, syntax.OpCapture:
		var b strings.Builder
		for _, s := range r.Sub {
			b.WriteString(shortest(s, choice))
		}
		return b.String()
	}
	return ""
}

// One text consists of logs, which contain almost nothing that looks secret. In the other, every fifth line
// contains three secrets.
func BenchmarkText(b *testing.B) {
	var sane []byte
	logs, err := filepath.Glob("../../../testdata/incidents/*/*.log")
	if err != nil || len(logs) == 0 {
		b.Fatal(logs, err)
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		sane = append(sane, text...)
	}
	for name, text := range map[string][]byte{"sane": sane, "secret": append(bytes.Clone(sane), strings.Repeat("2026-01-01T00:00:00Z DB_PASSWORD=hunter2 token: abc connecting to postgres://a:b@db/x\n", len(sane)/400)...)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Line(text)
			}
		})
	}
}

// The value of a variable with a secret name never appears in the masked object, which stays valid JSON.
// Masking again changes nothing, and no input makes the rules panic.
func FuzzMask(f *testing.F) {
	f.Add("DB_PASSWORD", "planted-value")
	f.Add("x", "> Authorization: Basic planted\nDB_PASSWORD=planted\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n")
	f.Add("TOKEN", `{"a":"`+jwt+`"}`)
	f.Add("note", "-----BEGIN PRIVATE KEY-----")
	f.Add("note", "000"+jwt)
	for i, c := range cases(f, "secret.txt") {
		if i%8 == 0 {
			f.Add("note", c)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		m := &Masker{}
		object := map[string]any{"env": []any{map[string]any{"name": name + "_PASSWORD", "value": value}}, "other": value, "list": []any{name, value}}
		text, err := json.Marshal(m.Value(object))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := object["env"].([]any)[0].(map[string]any)["value"].(string)
		if value != "" && got != Masked {
			t.Errorf("%s: %q", text, got)
		}
		once := Line(fmt.Appendf(nil, "%s=%s", name, value))
		if twice := Line(once); !bytes.Equal(twice, once) {
			t.Errorf("%q is masked again: %q", once, twice)
		}
		if m := (&Masker{}).string("TOKEN=" + jwt + " " + value); strings.Contains(m, jwt) {
			t.Errorf("a token stays: %q", m)
		}
	})
}
