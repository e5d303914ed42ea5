package debugapi

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The keys of the previous version of the control plane have the meaning of the present ones.
func TestAnOldControlPlane(t *testing.T) {
	raw, err := os.ReadFile("testdata/proxies-old.json")
	if err != nil {
		t.Fatal(err)
	}
	now := strings.NewReplacer(`"asked"`, `"subscribed"`, `"told"`, `"resources"`).Replace(string(raw))
	var got, want []Proxy
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(now), &want); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if names := want[i].Types[1].Subscribed; len(names) == 0 {
			t.Fatalf("the file has no subscriptions: %+v", want[i])
		}
		var a, b any // the order of keys may differ
		if json.Unmarshal(got[i].Raw, &a) != nil || json.Unmarshal(want[i].Raw, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("the text is\n%s, want\n%s", got[i].Raw, want[i].Raw)
		}
		got[i].Raw, want[i].Raw = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, no := range []string{`{"types":{}}`, `{"types":[1]}`, `[]`} {
		if json.Unmarshal([]byte(no), new(Proxy)) == nil {
			t.Errorf("%s is read", no)
		}
	}
}
