package mask

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLXBsYW50ZWQ"

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"connecting to postgres://shop:hunter2@db:5432/shop":             "connecting to postgres://(masked)@db:5432/shop",
		"> Authorization: Bearer abcdef123456":                           "> Authorization: (masked)",
		"DB_PASSWORD=hunter2 retrying":                                   "DB_PASSWORD=(masked) retrying",
		"token " + jwt:                                                   "token (masked)",
		"java.net.ConnectException: Connection refused":                  "java.net.ConnectException: Connection refused",
		"Failed to connect to /10.96.0.1:443":                            "Failed to connect to /10.96.0.1:443",
		"-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----": "(masked)",
	} {
		if got := string(Line([]byte(in))); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

// Whatever stands in a variable whose name is secret is not in the object, which stays JSON; and
// nothing makes the rules panic.
func FuzzMask(f *testing.F) {
	f.Add("DB_PASSWORD", "planted-value")
	f.Add("x", "> Authorization: Basic planted\nDB_PASSWORD=planted\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n")
	f.Add("TOKEN", `{"a":"`+jwt+`"}`)
	f.Add("note", "-----BEGIN PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, name, value string) {
		m := &Masker{}
		object := map[string]any{"env": []any{map[string]any{"name": name + "_PASSWORD", "value": value}}, "other": value, "list": []any{name, value}}
		text, err := json.Marshal(m.object(object))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := object["env"].([]any)[0].(map[string]any)["value"].(string)
		if value != "" && got != Masked {
			t.Errorf("%s: %q", text, got)
		}
		m.Text([]byte(fmt.Sprintf("%s=%s", name, value)))
		if m := (&Masker{}).string("TOKEN=" + jwt + " " + value); strings.Contains(m, jwt) {
			t.Errorf("a token stays: %q", m)
		}
	})
}
