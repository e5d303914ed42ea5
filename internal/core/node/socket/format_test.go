package socket

import (
	"encoding/json"
	"net/netip"
	"testing"

	"outrider.dev/test/formats"
)

// The network's plugin of one version asks the daemon of another one while outrider-node is rolled out.
func TestFormat(t *testing.T) {
	q := Question{Sandbox: "4f", Namespace: "/run/netns/a", Work: `{"capture":["-p","15001"]}`, Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	written := func(q Question) string {
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	formats.Check(t, "question", written(q), func(text string) (string, error) {
		var q Question
		err := json.Unmarshal([]byte(text), &q)
		return written(q), err
	})
}
