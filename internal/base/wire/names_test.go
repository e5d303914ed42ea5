package wire

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
)

var names = NamesResponse{Answers: []Answer{
	{Known: true, Aliases: []string{"db.shop.svc.cluster.local", "db.other.svc.cluster.local"}, Outside: "db.example.com", TTL: 30 * time.Second,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}},
	{TTL: 5 * time.Second},
}}

func TestNamesSurviveARoundTrip(t *testing.T) {
	request := NamesRequest{Names: []string{"reviews", "reviews.shop"}}
	gotRequest, err := ParseNamesRequest(request.Marshal())
	if diff := cmp.Diff(request, gotRequest); err != nil || diff != "" {
		t.Errorf("request: %v (-want +got):\n%s", err, diff)
	}
	got, err := ParseNamesResponse(names.Marshal())
	if diff := cmp.Diff(names, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Errorf("response: %v (-want +got):\n%s", err, diff)
	}
}

func TestNamesRefusesMessages(t *testing.T) {
	answer := func(field []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, fieldAnswer, protowire.BytesType), field)
	}
	many := Answer{Known: true}
	for range MaxAddresses + 1 {
		many.Addresses = append(many.Addresses, netip.IPv6Loopback())
	}
	tests := map[string]struct {
		request  bool
		raw      []byte
		wantText string
	}{
		"an address of five bytes":  {raw: answer([]byte{3<<3 | 2, 5, 1, 2, 3, 4, 5}), wantText: "field address: 5 bytes; want 4 or 16"},
		"an alias that is too long": {raw: answer(AppendField(nil, fieldAlias, strings.Repeat("a", 256))), wantText: "field alias: 256 bytes"},
		"too many addresses":        {raw: NamesResponse{Answers: []Answer{many}}.Marshal(), wantText: "more than 1000"},
		"a chain without an end":    {raw: NamesResponse{Answers: []Answer{{Aliases: strings.Split("a,b,c,d,e,f,g,h,i,j", ",")}}}.Marshal(), wantText: "more than 9"},
		"half a message":            {raw: names.Marshal()[:20], wantText: "not a protobuf message"},
		"a name without a letter":   {request: true, raw: NamesRequest{Names: []string{""}}.Marshal(), wantText: "field name: 0 bytes"},
		"a name that is no UTF-8":   {request: true, raw: NamesRequest{Names: []string{"\xff"}}.Marshal(), wantText: "field name"},
		"seventeen names":           {request: true, raw: NamesRequest{Names: strings.Split(strings.Repeat("a,", 16)+"a", ",")}.Marshal(), wantText: "more than 16"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseNamesResponse(tt.raw)
			if tt.request {
				_, err = ParseNamesRequest(tt.raw)
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantText) {
				t.Errorf("error %v, want %q", err, tt.wantText)
			}
		})
	}
}

func FuzzNames(f *testing.F) {
	f.Add(names.Marshal())
	f.Add(NamesRequest{Names: []string{"a", "b"}}.Marshal())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := ParseNamesRequest(raw); err == nil {
			if again, err := ParseNamesRequest(r.Marshal()); err != nil || !cmp.Equal(r, again) {
				t.Errorf("%+v comes back as %+v, %v", r, again, err)
			}
		}
		if r, err := ParseNamesResponse(raw); err == nil {
			again, err := ParseNamesResponse(r.Marshal())
			if diff := cmp.Diff(r, again, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("%v: %s", err, diff)
			}
		}
	})
}
