package sockets

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var same = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

const title = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

const (
	line4 = "   0: 0100007F:3A99 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1337        0 1063 1 00000000149b973f 100 0 0 10 0\n"
	line6 = "   1: B80D01200000000000000000010000000:3AAE 00000000000000000000000000000000:0000 02 00000000:00000000 00:00000000 00000000  1000        0 77 1 x\n"
)

func TestATableIsRead(t *testing.T) {
	ok6 := strings.Replace(line6, "B80D01200000000000000000010000000", "B80D0120000000000000000001000000", 1)
	var got []Socket
	for s, err := range parseTable(strings.NewReader(title + line4 + ok6)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	want := []Socket{
		{Local: netip.MustParseAddrPort("127.0.0.1:15001"), Remote: netip.MustParseAddrPort("0.0.0.0:0"), State: Listening, UID: 1337, Inode: 1063},
		{Local: netip.MustParseAddrPort("[2001:db8::1]:15022"), Remote: netip.MustParseAddrPort("[::]:0"), State: SynSent, UID: 1000, Inode: 77},
	}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestALineThatTheKernelDoesNotWriteIsAnError(t *testing.T) {
	for name, line := range map[string]string{
		"too short":       "0: 0100007F:3A99\n",
		"address":         line6,
		"port":            strings.Replace(line4, ":3A99", ":XX", 1),
		"no port":         strings.Replace(line4, ":3A99", "", 1),
		"state":           strings.Replace(line4, " 0A ", " 0G ", 1),
		"user":            strings.Replace(line4, " 1337 ", " -1 ", 1),
		"inode":           strings.Replace(line4, " 1063 ", " x ", 1),
		"a line too long": strings.Repeat("x", 100_000),
	} {
		var last error
		for _, err := range parseTable(strings.NewReader(title + line)) {
			last = err
		}
		if last == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte(title + line4))
	f.Add([]byte(title + line6))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for s, err := range parseTable(bytes.NewReader(raw)) {
			if err == nil && (!s.Local.IsValid() || !s.Remote.IsValid()) {
				t.Errorf("%+v without an error", s)
			}
		}
	})
}

func TestWithoutATableThereIsAnError(t *testing.T) {
	if _, err := Proc(t.TempDir(), TCP, Any); err == nil {
		t.Error("nothing was read, and nothing said")
	}
}
