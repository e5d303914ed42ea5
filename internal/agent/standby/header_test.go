package standby

import (
	"bytes"
	"io"
	"log/slog"
	"net/netip"
	"testing"
)

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestHeader(t *testing.T) {
	got := header(netip.MustParseAddrPort("10.0.0.1:258"), netip.MustParseAddrPort("10.0.0.2:80"))
	want := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x01\x02\x00\x50"
	if string(got) != want {
		t.Errorf("header\n%q, want\n%q", got, want)
	}
	to := netip.MustParseAddrPort("[fd00::1]:443")
	got = header(netip.MustParseAddrPort("[fd00::2]:1"), to)
	if len(got) != 52 || got[13] != 0x21 || readHeader(bytes.NewReader(got)) != to {
		t.Errorf("header %q of IPv6", got)
	}
}
