package localpod

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "a", "B": "$(A)"}
	tests := map[string]struct{ text, want string }{
		"a variable":                     {"x $(A) y", "x a y"},
		"its value is not looked at":     {"$(B)", "$(A)"},
		"one that is not there":          {"$(C)", "$(C)"},
		"an escaped one":                 {"$$(A)", "$(A)"},
		"a dollar for the shell":         {"$A $", "$A $"},
		"one that does not end":          {"$(A", "$(A"},
		"several escapes":                {"$$$(A)$$", "$a$"},
		"an empty name":                  {"$()", "$()"},
		"one behind one that never ends": {"$(A $(A)", "$(A $(A)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := expand(tt.text, vars); got != tt.want {
				t.Errorf("expand(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestMachineMounts(t *testing.T) {
	const text = `22 27 0:21 / /proc rw - proc proc rw
24 27 0:6 / /dev rw - devtmpfs devtmpfs rw
25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw
27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 0:25 / /home\040of\040all rw,relatime shared:1 - xfs /dev/vdb rw
29 27 0:26 / /tmp rw - tmpfs tmpfs rw
30 27 0:27 / /run rw - tmpfs tmpfs rw
31 27 254:0 /hosts /etc/hosts rw - ext4 /dev/vda rw
32 27 0:28 / /tmp rw - tmpfs tmpfs rw
`
	got, err := machineMounts(strings.NewReader(text))
	if diff := cmp.Diff([]string{"/home of all", "/tmp"}, got); diff != "" || err != nil {
		t.Errorf("machineMounts: %v (-want +got):\n%s", err, diff)
	}
	if _, err := machineMounts(strings.NewReader("what?\n")); err == nil {
		t.Error("a line that cannot be read is no error")
	}
}

func TestServingStatus(t *testing.T) {
	tests := map[string]struct {
		body []byte
		want uint64
		bad  bool
	}{
		"serving":                   {[]byte{0, 0, 0, 0, 2, 8, 1}, 1, false},
		"not serving":               {[]byte{0, 0, 0, 0, 2, 8, 2}, 2, false},
		"unknown is left out":       {[]byte{0, 0, 0, 0, 0}, 0, false},
		"a field that came later":   {[]byte{0, 0, 0, 0, 4, 8, 1, 18, 0}, 1, false},
		"compressed":                {[]byte{1, 0, 0, 0, 2, 8, 1}, 0, true},
		"shorter than its length":   {[]byte{0, 0, 0, 0, 3, 8, 1}, 0, true},
		"a field that does not end": {[]byte{0, 0, 0, 0, 2, 8, 0x80}, 0, true},
		"nothing":                   {nil, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := servingStatus(tt.body)
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("servingStatus = %d, %v; want %d, error %t", got, err, tt.want, tt.bad)
			}
		})
	}
}

func FuzzReaders(f *testing.F) {
	f.Add("$(A) $$ $( $(", []byte{0, 0, 0, 0, 2, 8, 1})
	f.Add(`28 27 0:25 / /home\040of rw - xfs /dev/vdb rw`, []byte{1})
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		if got := expand(strings.ReplaceAll(text, "$", "$$"), map[string]string{"A": "a"}); got != text {
			t.Errorf("%q, escaped and expanded, is %q", text, got)
		}
		if got := expand(text, nil); len(got) > len(text) {
			t.Errorf("expand(%q) grew to %q", text, got)
		}
		if _, err := machineMounts(strings.NewReader(text)); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		if got, err := servingStatus(framed(append([]byte{8, 1}, body...))); err == nil && got == 0 && len(body) == 0 {
			t.Error("a plain answer is not read")
		}
		_, _ = servingStatus(body)
		_, _, _ = Objects("file", []byte(text))
		_, _, _ = Objects("file", bytes.Join([][]byte{[]byte("kind: ConfigMap"), body}, []byte("\n")))
	})
}
