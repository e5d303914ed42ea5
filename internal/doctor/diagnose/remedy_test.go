package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/startup"
)

// The replay reproduces the race, and shows that the remedy prevents it.
func TestReplay(t *testing.T) {
	annotated := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, folder string) { edit(t, filepath.Join(folder, "pod.yaml"), from, to) }
	}
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		code   string
		by     startup.Mechanism
		patch  string
	}{
		"a classic proxy":             {nil, "startup-race", startup.Hold, "holdApplicationUntilProxyStarts"},
		"a hold that the pod has not": {annotated("metadata:\n", "metadata:\n  annotations: {proxy.istio.io/config: 'holdApplicationUntilProxyStarts: true'}\n"), "hold-without-effect", startup.Native, "nativeSidecar"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/awesome-app")); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(t, folder)
			}
			f := diagnoseFolder(t, folder).Findings[0]
			if string(f.Code) != c.code || !strings.Contains(f.Patch, c.patch) || (f.Patch == "") != (c.patch == "") {
				t.Errorf("%s with the patch %q, want %s with %s", f.Code, f.Patch, c.code, c.patch)
			}
			if f.Replay == nil {
				t.Fatal("no replay")
			}
			if r := *f.Replay; r.Mechanism != c.by || r.AsItWas.Refused == 0 || r.AsItWas.Restarts == 0 || r.Remedied.Refused != 0 || r.Remedied.Restarts != 0 || r.Remedied.Runs >= r.AsItWas.Runs {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A container that started before its dependency, by the pod's plan, is found even without a failed call.
func TestOrderBroken(t *testing.T) {
	for name, c := range map[string]struct {
		annotation, start string
		want              string
	}{
		"declared, and nothing keeps it": {"outrider.dev/depends-on.web: istio-proxy", "13:16:21Z", "found order-not-kept"},
		"within the clocks' error":       {"outrider.dev/depends-on.web: istio-proxy", "13:16:22Z", "nothing"},
		"declared, and kept":             {"outrider.dev/depends-on.web: istio-proxy", "13:16:24Z", "nothing"},
		"not declared":                   {"a: b", "13:16:21Z", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/clean")); err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(folder, "pod.yaml"), "metadata:\n", "metadata:\n  annotations: {"+c.annotation+"}\n")
			edit(t, filepath.Join(folder, "pod.yaml"), "13:16:24Z", c.start)
			if got := key(diagnoseFolder(t, folder)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A proxy whose agent says that capture was lost is found, whether capture is back or not.
func TestCaptureLost(t *testing.T) {
	const (
		lost  = `{"time":"2026-11-24T09:18:42.7Z","level":"WARN","msg":"condition does not hold","condition":"capture","reason":"inbound IPv4: a connection to 127.0.0.6:15002 did not come to the proxy: connection refused"}` + "\n"
		back  = `{"time":"2026-11-24T09:28:42.7Z","level":"INFO","msg":"condition holds","condition":"capture","note":""}` + "\n"
		begin = `{"time":"2026-11-24T08:18:42.0Z","level":"INFO","msg":"condition does not hold yet","condition":"capture","reason":"inbound IPv4: a connection to 127.0.0.6:15002 did not come to the proxy: connection refused"}` + "\n"
	)
	for name, tt := range map[string]struct{ log, sentence string }{
		"it is gone":            {lost, "connections go past outrider-proxy: the rules of the capture are missing, or others act in their place"},
		"it is back":            {back + lost + back, "connections went past outrider-proxy for a while: the rules of the capture did not act, and do again"},
		"it is gone again":      {lost + back + lost, "connections go past outrider-proxy: the rules of the capture are missing, or others act in their place"},
		"it was never there":    {begin, "outrider-proxy is not ready: connections do not come to it"},
		"it was there at last":  {begin + back, ""},
		"nothing is said of it": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/nginx-outrider-clean")); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(folder, "outrider-proxy.log")
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tt.sentence, "not ready") {
				text = nil // the proxy says nothing else
			}
			if err := os.WriteFile(log, append(text, tt.log...), 0o600); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tt.sentence, "not ready") {
				edit(t, filepath.Join(folder, "pod.yaml"), "ready: true", "ready: false")
			}
			got := diagnoseFolder(t, folder)
			if tt.sentence == "" {
				if len(got.Findings) != 0 {
					t.Errorf("%+v", got.Findings)
				}
				return
			}
			if len(got.Findings) == 0 || got.Findings[0].Code != "capture-not-in-place" || got.Findings[0].Sentence != tt.sentence || got.Verdict != result.Found {
				t.Errorf("%s: %+v", got.Verdict, got.Findings)
			}
		})
	}
}

func edit(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(text), from) {
		err = fmt.Errorf("%s has no %q", file, from)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// If a log does not name the destination of a call, the call may not have been captured, so the diagnosis is
// undecided.
func TestUnnamedDestinationIsUndecided(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(incidents+"/dotnet-port-left-out")); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(folder, "loyalty.previous.log"), " (config:8888)", "")
	if got := key(diagnoseFolder(t, folder)); got != "undecided startup-race" {
		t.Errorf("%s, want undecided", got)
	}
}

// Log lines of a gate about an address that refuses connections are not failed calls of the application.
func TestGatesAreNoCallers(t *testing.T) {
	for line, want := range map[string]string{
		"outrider-gate: waits for istio-proxy: GET http://127.0.0.1:9000/ready: connect: connection refused": "nothing",
		"GET http://127.0.0.1:9000/ready: connect: connection refused":                                       "found sibling-down",
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(incidents+"/clean")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "web.log"), []byte("2026-03-02T13:16:24.600Z "+line+"\n2026-03-02T13:16:26.902Z up\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := key(diagnoseFolder(t, folder)); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// A proxy's response says whether it could not connect, or the connection ended: with TLS 1.3 a server refuses a
// certificate after the client has connected. The lines are Envoy's, with TLS 1.2 and 1.3.
func TestRefusedCertificateIsNoFailedConnection(t *testing.T) {
	const by = "outrider (outbound): legacy-config:8080 at 10.96.0.1:8080: "
	for line, want := range map[string]string{
		by + "10.244.4.2:8080 (TLS: TLSv1.3) ended the connection before it answered: upstream connect error or disconnect/reset before headers. reset reason: connection termination (UC, upstream_reset_before_response_started{connection_termination})":                                                                                    "the connection was made, and ended before an answer",
		by + "no connection to 10.244.4.2:8080: upstream connect error or disconnect/reset before headers. retried and the latest reset reason: remote connection failure (URX,UF, upstream_reset_before_response_started{remote_connection_failure|TLS_error:|268436504:SSL_routines:OPENSSL_internal:TLSV1_ALERT_UNKNOWN_CA:TLS_error_end})": "which could not connect to it",
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(incidents+"/curl-outrider-down")); err != nil {
			t.Fatal(err)
		}
		for _, log := range []string{"reports.log", "reports.previous.log"} {
			edit(t, filepath.Join(folder, log), "curl: (22) The requested URL returned error: 503", line)
		}
		r := diagnoseFolder(t, folder)
		if len(r.Findings) == 0 || r.Findings[0].Code != "dependency-down" || !strings.Contains(r.Findings[0].Sentence, want) {
			t.Errorf("%s:\n%+v, want %q", line, r.Findings, want)
		}
	}
}
