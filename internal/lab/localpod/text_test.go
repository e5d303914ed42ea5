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
}

func FuzzReaders(f *testing.F) {
	f.Add("$(A) $$ $( $(", []byte("data: {a: 1}"))
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		if got := expand(strings.ReplaceAll(text, "$", "$$"), map[string]string{"A": "a"}); got != text {
			t.Errorf("%q, escaped and expanded, is %q", text, got)
		}
		if got := expand(text, nil); len(got) > len(text) {
			t.Errorf("expand(%q) grew to %q", text, got)
		}
		_, _, _ = Objects("file", []byte(text))
		_, _, _ = Objects("file", bytes.Join([][]byte{[]byte("kind: ConfigMap"), body}, []byte("\n")))
	})
}
