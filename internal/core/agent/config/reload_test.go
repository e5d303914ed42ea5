package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
)

func TestChangesOfARunningPod(t *testing.T) {
	config := func(text string) string { return `proxy.istio.io/config="` + text + `"` }
	tests := map[string]struct {
		before, now string // the annotations
		flags       map[string]string
		env         []string
		want        []Change
	}{
		"an annotation of another domain": {before: `a="b"`, now: `a="c"`},
		"a log level by its annotation wins over the flag that is as old as the pod": {
			flags: map[string]string{"proxyLogLevel": "warning"},
			now:   `sidecar.istio.io/logLevel="debug"`,
			want:  []Change{{Setting: "log level", From: "warning", To: "debug"}},
		},
		"a log level that was there from the beginning, and is taken away, is in the flag still": {
			flags:  map[string]string{"proxyLogLevel": "info"},
			before: `sidecar.istio.io/logLevel="info"`,
			want: []Change{{Setting: "annotation sidecar.istio.io/logLevel", From: "info",
				Refused: remains}},
		},
		"the agent's own level": {
			flags: map[string]string{"log-level": "info"},
			now:   `sidecar.istio.io/agentLogLevel="default:debug"`,
			want:  []Change{{Setting: "the agent's log level", From: "INFO", To: "DEBUG"}},
		},
		"how long to stay can change": {
			now:  config("terminationDrainDuration: 9s"),
			want: []Change{{Setting: "terminationDrainDuration", From: "5s", To: "9s"}},
		},
		"the drain time can, but for what Envoy drains by itself": {
			now: config("drainDuration: 9s"),
			want: []Change{{Setting: "drainDuration", From: "45s", To: "9s",
				Later: "listeners that the control plane replaces drain as before until Envoy starts again"}},
		},
		"other settings are refused": {
			before: config("{proxyMetadata: {SECRET_TTL: 1h}, tracing: {sampling: 1}}"),
			now: config("{concurrency: 7, discoveryAddress: other:1, interceptionMode: TPROXY, colour: red, tracing: {sampling: 2}," +
				" proxyStatsMatcher: {inclusionPrefixes: [http.]}, proxyMetadata: {PASSWORD: xyz}}"),
			want: []Change{
				{Setting: "colour", To: "red", Refused: "no such setting is known; it has no effect"},
				{Setting: "concurrency", To: "7", Refused: created},
				{Setting: "discoveryAddress", To: "other:1", Refused: created},
				{Setting: "interceptionMode", To: "TPROXY", Refused: created},
				{Setting: "proxyMetadata", Refused: created},
				{Setting: "proxyStatsMatcher", To: `{"inclusionPrefixes":["http."]}`, Refused: created},
				{Setting: "tracing", From: `{"sampling":1}`, To: `{"sampling":2}`, Refused: created},
			},
		},
		"annotations that count when a pod is made": {
			before: `outrider.dev/park="on"`,
			now:    "outrider.dev/park=\"off\"\nreadiness.status.sidecar.istio.io/periodSeconds=\"3\"\nambient.istio.io/redirection=\"enabled\"",
			want: []Change{
				{Setting: "annotation outrider.dev/park", From: "on", To: "off", Refused: created},
				{Setting: "annotation readiness.status.sidecar.istio.io/periodSeconds", To: "3", Refused: created},
			},
		},
		"a setting that was removed, but PROXY_CONFIG still has it": {
			env:    []string{"PROXY_CONFIG={drainDuration: 9s}"},
			before: config("{drainDuration: 9s}"), now: config("{}"),
			want: []Change{{Setting: "drainDuration", From: "9s", Refused: remains}},
		},
		"a default that was written, and removed": {before: config("{drainDuration: 45s}"), now: config("{}")},
		"a default that is written":               {now: config("{drainDuration: 45s}")},
		"a setting that was taken away and is nowhere else": {
			before: config("terminationDrainDuration: 9s"), now: config("{}"),
			want: []Change{{Setting: "terminationDrainDuration", From: "9s", To: "5s"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Flags: tt.flags, Environ: append(pod[:len(pod):len(pod)], tt.env...), ReadFile: files(map[string]string{contract.AnnotationsFile: tt.before})}
			runs, err := Read(in)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := Annotations([]byte(tt.before))
			now, _ := Annotations([]byte(tt.now))
			in.ReadFile = files(map[string]string{contract.AnnotationsFile: tt.now})
			to, err := Read(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, Changes(runs, to, before, now)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			for _, c := range Changes(Taken(runs, to), to, before, now) {
				if c.Refused == "" {
					t.Errorf("%+v was not taken", c)
				}
			}
		})
	}
}

func TestALongValueIsCut(t *testing.T) {
	now := map[string]string{contract.Park: strings.Repeat("ä", 1000)}
	got := Changes(Default(), Default(), nil, now)
	if len(got) != 1 || len(got[0].To) > 210 || !strings.HasPrefix(got[0].To, "ää") {
		t.Errorf("%+v", got)
	}
}
