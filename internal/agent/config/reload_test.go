package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesOfARunningPod(t *testing.T) {
	const file = "/etc/outrider/pod/annotations"
	config := func(text string) string { return `proxy.istio.io/config="` + text + `"` }
	tests := map[string]struct {
		before, now string // the annotations
		flags       map[string]string
		env         []string
		want        []Change
	}{
		"somebody else's": {before: `a="b"`, now: `a="c"`},
		"a log level by its annotation wins over the flag that is as old as the pod": {
			flags: map[string]string{"proxyLogLevel": "warning"},
			now:   `sidecar.istio.io/logLevel="debug"`,
			want:  []Change{{Setting: "log level", From: "warning", To: "debug"}},
		},
		"a log level that was there from the beginning, and is taken away, is in the flag still": {
			flags:  map[string]string{"proxyLogLevel": "info"},
			before: `sidecar.istio.io/logLevel="info"`,
			want: []Change{{Setting: "annotation sidecar.istio.io/logLevel", From: "info",
				Refused: "the argument --proxyLogLevel has said the same since the pod was made: write the level that is wanted"}},
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
		"statistics can, in part": {
			now: config("proxyStatsMatcher: {inclusionPrefixes: [http.]}"),
			want: []Change{{Setting: "proxyStatsMatcher", From: "{Prefixes:[] Suffixes:[] Regexps:[]}", To: "{Prefixes:[http.] Suffixes:[] Regexps:[]}",
				Later: "what is left out is not shown on the status port any more; what is new is counted when Envoy starts again"}},
		},
		"what only a new process can take is refused, each with its reason": {
			now: config("{concurrency: 7, serviceCluster: a, binaryPath: b, configPath: c, controlPlaneAuthPolicy: NONE}"),
			want: []Change{
				{Setting: "concurrency", From: "2", To: "7", Refused: "Envoy makes its worker threads at its start: make a new pod"},
				{Setting: "serviceCluster", From: "outrider-proxy", To: "a", Refused: bootstrap},
				{Setting: "binaryPath", From: "envoy", To: "b", Refused: "the program runs already: make a new pod"},
				{Setting: "configPath", From: "/etc/outrider/proxy", To: "c", Refused: "Envoy reads and the agent writes there from the start: make a new pod"},
				{Setting: "controlPlaneAuthPolicy", From: "false", To: "true", Refused: bootstrap},
			},
		},
		"an address is one change": {
			now:  config("discoveryAddress: other:1"),
			want: []Change{{Setting: "discoveryAddress", From: "outriderd.outrider-system.svc:15012", To: "other:1", Refused: bootstrap}},
		},
		"variables are the container's, and a secret is not shown": {
			before: config("proxyMetadata: {SECRET_TTL: 1h}"),
			now:    config("proxyMetadata: {SECRET_TTL: 2h, MINIMUM_DRAIN_DURATION: 1s, PASSWORD: xyz}"),
			want: []Change{
				{Setting: "proxyMetadata: MINIMUM_DRAIN_DURATION", To: "1s", Refused: variable},
				{Setting: "proxyMetadata: PASSWORD", To: "a value that is not shown", Refused: variable},
				{Setting: "proxyMetadata: SECRET_TTL", From: "1h", To: "2h", Refused: variable},
			},
		},
		"settings of others, and of nobody": {
			before: config("{tracing: {sampling: 1}}"),
			now:    config("{tracing: {sampling: 2}, interceptionMode: TPROXY, holdApplicationUntilProxyStarts: true, colour: red}"),
			want: []Change{
				{Setting: "colour", To: "red", Refused: "no such setting is known; it has no effect"},
				{Setting: "holdApplicationUntilProxyStarts", To: "true", Refused: injected},
				{Setting: "interceptionMode", To: "TPROXY", Refused: injected},
				{Setting: "tracing", From: `{"sampling":1}`, To: `{"sampling":2}`, Refused: "it has no effect: tracing is not configured by the agent yet"},
			},
		},
		"annotations that count when a pod is made": {
			before: `outrider.dev/park="on"`,
			now:    "outrider.dev/park=\"off\"\nreadiness.status.sidecar.istio.io/periodSeconds=\"3\"\nambient.istio.io/redirection=\"enabled\"",
			want: []Change{
				{Setting: "annotation outrider.dev/park", From: "on", To: "off", Refused: injected},
				{Setting: "annotation readiness.status.sidecar.istio.io/periodSeconds", To: "3", Refused: fixed},
			},
		},
		"a setting that was taken away is in the variable still": {
			env:    []string{"PROXY_CONFIG={drainDuration: 9s, proxyMetadata: {A: b}}"},
			before: config("{drainDuration: 9s, proxyMetadata: {A: b}}"), now: config("{}"),
			want: []Change{
				{Setting: "drainDuration", From: "9s", Refused: "the variable PROXY_CONFIG has said the same since the pod was made: write the value that is wanted"},
				{Setting: "proxyMetadata: A", From: "a value that is not shown", Refused: "the variable PROXY_CONFIG has said the same since the pod was made: write the value that is wanted"},
			},
		},
		"a setting of which a flag says something else": {
			flags:  map[string]string{"work-dir": "/w", "concurrency": "3"},
			before: config("{configPath: /v}"), now: config("{configPath: /x, concurrency: 0, drainDuration: 45s}"),
			want: []Change{
				{Setting: "concurrency", To: "0", Refused: "a flag or a variable says something else, and wins: make a new pod"},
				{Setting: "configPath", From: "/v", To: "/x", Refused: "a flag or a variable says something else, and wins: make a new pod"},
			},
		},
		"a setting that was taken away and is nowhere else": {
			before: config("terminationDrainDuration: 9s"), now: config("{}"),
			want: []Change{{Setting: "terminationDrainDuration", From: "9s", To: "5s"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Flags: tt.flags, Environ: append(pod[:len(pod):len(pod)], tt.env...), ReadFile: files(map[string]string{file: tt.before})}
			runs, err := Read(in)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := Annotations([]byte(tt.before))
			now, _ := Annotations([]byte(tt.now))
			in.ReadFile, in.Running = files(map[string]string{file: tt.now}), &runs
			to, err := Read(in)
			if err != nil {
				t.Fatal(err)
			}
			got := append(Changes(runs, to), in.Unread(to, before, now)...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			// What is taken differs no more, and what is refused does as before.
			left := Changes(Taken(runs, to), to)
			for _, c := range left {
				if c.Refused == "" {
					t.Errorf("%+v was not taken", c)
				}
			}
		})
	}
}

// What is in no row could change in silence.
func TestEveryFieldIsASetting(t *testing.T) {
	apart := map[string]bool{"Notes": true, "Variables": true, "Elsewhere": true} // compared by name
	var walk func(of reflect.Type, prefix string)
	walk = func(of reflect.Type, prefix string) {
		for i := range of.NumField() {
			f := of.Field(i)
			path := prefix + f.Name
			rows := 0
			for _, s := range settings {
				if s.field == path {
					rows++
				}
			}
			switch {
			case rows == 1 || apart[path]:
			case rows == 0 && f.Type.Kind() == reflect.Struct:
				walk(f.Type, path+".")
			default:
				t.Errorf("%s is in %d rows; want one", path, rows)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

func TestALongValueIsCut(t *testing.T) {
	to := Default()
	to.Envoy.Extra = json.RawMessage(`{"a":"` + strings.Repeat("ä", 1000) + `"}`)
	got := Changes(Default(), to)
	if len(got) != 1 || len(got[0].To) > 210 || !strings.HasPrefix(got[0].To, `{"a":"ä`) {
		t.Errorf("%+v", got)
	}
}
