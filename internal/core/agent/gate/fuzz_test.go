package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

func TestProbesAreReadAsInAPod(t *testing.T) {
	service := "x"
	tests := map[string]struct {
		text string
		want Probe
	}{
		"defaults are Kubernetes'": {`{"httpGet":{"path":"/ready","port":8080}}`,
			Probe{HTTPGet: &HTTPGet{Path: "/ready", Port: 8080, Scheme: "HTTP"}, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}},
		"a port in quotes, and fields for the kubelet alone": {`{"tcpSocket":{"port":"6379"},"periodSeconds":2,"terminationGracePeriodSeconds":3}`,
			Probe{TCPSocket: &TCPSocket{Port: 6379}, TimeoutSeconds: 1, PeriodSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3}},
		"all numbers": {`{"grpc":{"port":1,"service":"x"},"initialDelaySeconds":1,"timeoutSeconds":2,"periodSeconds":3,"successThreshold":4,"failureThreshold":2147483647}`,
			Probe{GRPC: &GRPC{Port: 1, Service: &service}, InitialDelaySeconds: 1, TimeoutSeconds: 2, PeriodSeconds: 3, SuccessThreshold: 4, FailureThreshold: 1<<31 - 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseProbe(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoProbeNoHookNoNotification(t *testing.T) {
	probe := func(text string) error { _, err := ParseProbe(text); return err }
	hook := func(text string) error { _, err := ParseHook(text); return err }
	notify := func(text string) error { _, err := ParseNotify(text); return err }
	after := func(text string) error { _, err := ParseAfter("app", text); return err }
	address := func(text string) error { _, err := ParseAddress(text); return err }
	tests := map[string]struct {
		read       func(string) error
		text, want string
	}{
		"a port by its name":           {probe, `{"httpGet":{"port":"http"}}`, "want a number from 1 to 65535, not a name"},
		"no port":                      {probe, `{"httpGet":{"path":"/"}}`, "httpGet.port is missing"},
		"two ways at once":             {probe, `{"exec":{"command":["true"]},"grpc":{"port":1}}`, "want one of httpGet, tcpSocket, exec, grpc"},
		"no way":                       {probe, `{}`, "want one of"},
		"no JSON":                      {probe, `/ready`, "want JSON as in a pod"},
		"a word for a number":          {probe, `{"periodSeconds":"10"}`, "periodSeconds is a string, want a int"},
		"a number below 0":             {probe, `{"tcpSocket":{"port":1},"periodSeconds":-1}`, "periodSeconds is -1"},
		"an empty command":             {probe, `{"exec":{}}`, "exec.command is empty"},
		"an unknown scheme":            {probe, `{"httpGet":{"port":1,"scheme":"FTP"}}`, `scheme is "FTP", want HTTP or HTTPS`},
		"a hook that does nothing":     {hook, `{}`, "want one of exec, httpGet, sleep"},
		"a hook that does two things":  {hook, `{"sleep":{"seconds":1},"exec":{"command":["true"]}}`, "want one of"},
		"a sleep backwards":            {hook, `{"sleep":{"seconds":-1}}`, "sleep.seconds is -1"},
		"a descriptor that is taken":   {notify, "fd=2", "from 3 to 255"},
		"an unknown protocol":          {notify, "dbus", "want socket, fd or fd=N"},
		"an edge to everything":        {after, "* is healthy", "by its name"},
		"an edge to itself":            {after, "app is healthy", "waits for itself"},
		"a condition that is none":     {after, "cache is ready", `"ready" is none of started, healthy, completed`},
		"more than one statement":      {after, "cache is healthy\ncontainer x is init", "more than one statement"},
		"a statement without an end":   {after, "", "want as in"},
		"an address without a scheme":  {address, "127.0.0.1:15021/ready", "cannot contain colon"},
		"an address of another scheme": {address, "ftp://x/", "want http://HOST:PORT/PATH"},
		"a socket without its path":    {address, "http+unix://x/ready", "want http+unix://%2Fpath%2Fof.sock/path"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.read(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
			}
		})
	}
}

func TestReadNotification(t *testing.T) {
	for text, want := range map[string][2]bool{
		"READY=1": {true, true}, "STATUS=up\nREADY=1\n": {true, true}, "READY=1\r\n": {true, true}, "STOPPING=1": {false, true},
		"RELOADING=1\nREADY=1": {true, true}, "READY=0": {}, "STATUS=READY=1": {}, "": {},
	} {
		if healthy, ok := readNotification([]byte(text)); [2]bool{healthy, ok} != want {
			t.Errorf("%q: %v, %v, want %v", text, healthy, ok, want)
		}
	}
}

func FuzzParseProbe(f *testing.F) {
	f.Add(`{"httpGet":{"path":"/ready","port":"8080","httpHeaders":[{"name":"a","value":"b"}]},"periodSeconds":1}`)
	f.Add(`{"exec":{"command":["a"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProbe(text)
		if err != nil {
			return
		}
		if p.PeriodSeconds < 1 || p.TimeoutSeconds < 1 || p.SuccessThreshold < 1 || p.FailureThreshold < 1 {
			t.Errorf("%q: %+v", text, p)
		}
		for tries := range 40 {
			if d := p.pause(tries); d <= 0 || d > time.Duration(p.PeriodSeconds)*time.Second {
				t.Errorf("%q: pause %d is %s", text, tries, d)
			}
		}
	})
}

func FuzzParseAfter(f *testing.F) {
	f.Add("cache is healthy, optional, within 20s or continue, on restart notify")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseAfter("app", text)
		if err != nil {
			return
		}
		again, err := ParseAfter("app", strings.TrimPrefix(e.String(), "app after "))
		if err != nil || again != e || e.To != "app" || e.From == startup.Everything {
			t.Errorf("%q is %+v, and then %+v, %v", text, e, again, err)
		}
	})
}
