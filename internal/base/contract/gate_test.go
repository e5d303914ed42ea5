package contract

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheGatesCommandLine(t *testing.T) {
	g := Gate{Name: "app", After: []string{"cache is healthy, within 20s", "proxy is started"}, At: map[string]string{"proxy": "http://127.0.0.1:1/", "b": "http://x/?a=b"},
		Probe: `{"tcpSocket":{"port":1}}`, StartupProbe: `{"exec":{}}`, LivenessDelay: 20 * time.Second, PostStart: "{}", Notify: "fd=4", RestartPolicy: "Never", StopGrace: 90 * time.Second, PreStop: true,
		HelperOf: []string{"a", "b"}, StopSignal: "SIGUSR1", NotifySignal: "HUP", Command: []string{"java", "--after", "--", "x"}}
	want := []string{"gate", "--name", "app", "--after", "cache is healthy, within 20s", "--after", "proxy is started", "--at", "b=http://x/?a=b", "--at", "proxy=http://127.0.0.1:1/",
		"--probe", `{"tcpSocket":{"port":1}}`, "--startup-probe", `{"exec":{}}`, "--liveness-delay", "20s", "--post-start", "{}", "--notify", "fd=4", "--restart-policy", "Never", "--stop-grace", "90s", "--pre-stop",
		"--helper-of", "a,b", "--stop-signal", "SIGUSR1", "--notify-signal", "HUP", "--", "java", "--after", "--", "x"}
	if got := g.Args(); !slices.Equal(got, want) {
		t.Errorf("Args is\n%q, want\n%q", got, want)
	}
	if back, ok := ParseGate(want); !ok || !reflect.DeepEqual(back, g) {
		t.Errorf("it is read back as %+v, %v", back, ok)
	}
	h := Held{Name: "app", Probe: "{}", Command: []string{"x"}}
	if back, ok := ParseHeld(h.Args()); !ok || !reflect.DeepEqual(back, h) {
		t.Errorf("%q is read back as %+v, %v", h.Args(), back, ok)
	}
	s := Started{Name: "app", States: "/s"}
	if back, ok := ParseStarted(s.Args()); !ok || back != s {
		t.Errorf("%q is read back as %+v, %v", s.Args(), back, ok)
	}
	for _, p := range []PreStop{{Name: "istio-proxy", States: "/s", At: "http://x/", Drain: "http://y/", Live: "{}", Sockets: true, Apart: []uint32{0, 5995}, Hook: `{"sleep":{"seconds":1}}`, StopGrace: time.Minute}, {Name: "p", StopGrace: -1}} {
		if back, ok := ParsePreStop(p.Args()); !ok || !reflect.DeepEqual(back, p) {
			t.Errorf("%q is read back as %+v, %v", p.Args(), back, ok)
		}
	}
	for _, no := range []string{"", "gate --name x", "pre-stop --name x y", "pre-stop --stop-grace soon", "pre-stop --apart root"} {
		if got, ok := ParsePreStop(strings.Fields(no)); ok {
			t.Errorf("%q is read as %+v", no, got)
		}
	}
	for _, no := range []string{"", "held --name x", "gate --no-such-flag", "gate --at x", "gate --stop-grace soon", "gate --name"} {
		if got, ok := ParseGate(strings.Fields(no)); ok {
			t.Errorf("%q is read as %+v", no, got)
		}
	}
}

// A parsed gate can be written as arguments, and they parse to the same gate.
func FuzzGate(f *testing.F) {
	f.Add("gate\x00--name\x00app\x00--after=b is started\x00--at\x00b=http://x\x00--stop-grace=1500ms\x00--\x00x")
	f.Add("gate\x00-pre-stop=false\x00-helper-of\x00,a\x00--stop-grace\x000\x00--states\x00\x00x\x00--")
	f.Fuzz(func(t *testing.T, text string) {
		g, ok := ParseGate(strings.Split(text, "\x00"))
		if !ok {
			return
		}
		if back, ok := ParseGate(g.Args()); !ok || !reflect.DeepEqual(back.Args(), g.Args()) || !slices.Equal(back.Command, g.Command) {
			t.Errorf("%q is read as %+v and back as %+v, %v", text, g, back, ok)
		}
	})
}
