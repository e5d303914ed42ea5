package bootconfig

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// A store reads back the records that it wrote, and accepts no other file.
func FuzzParseRecord(f *testing.F) {
	whole, err := encodeRecord(record{header{From: "https://centre.example/a", Version: `"1"`, Fetched: time.Unix(1, 0).UTC()}, good(1)}, "2")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, "2")
	f.Add(whole, "3")
	f.Add(whole[:len(whole)-1], "2")
	f.Add([]byte("{}\n"), "")
	f.Add([]byte("\n"), "")
	f.Fuzz(func(t *testing.T, data []byte, schema string) {
		r, err := parseRecord(data, schema)
		if err != nil {
			return
		}
		again, err := encodeRecord(r, schema)
		if err != nil {
			return // the header exceeds its limit when it is written in canonical form
		}
		back, err := parseRecord(again, schema)
		if err != nil || !bytes.Equal(back.document, r.document) || back.Version != r.Version || back.From != r.From {
			t.Errorf("written again, %q is read as %+v, %v", again, back, err)
		}
	})
}

// JSON accepts exactly what package json accepts as one value, except null.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"N":1,"Twice":2}`, `null`, ` {} `, `{}{}`, `[`, ``, `"x"`, `{"N":1e99}`, `{"Names":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var ours, theirs settings
		err := JSON(data, &ours)
		if want := json.Unmarshal(data, &theirs); (err == nil) != (want == nil && string(bytes.TrimSpace(data)) != "null") {
			t.Errorf("JSON: %v; json.Unmarshal: %v", err, want)
		}
	})
}

// Whatever Retry-After a server sends, the result is between zero and an hour.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "99999999999999999999", "9223372036854775807", "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		d, ok := retryAfter(value, time.Unix(1e9, 0))
		if d < 0 || d > time.Hour || !ok && d != 0 {
			t.Errorf("%q is %v, %v", value, d, ok)
		}
	})
}
