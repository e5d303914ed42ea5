package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesOfARunningPod(t *testing.T) {
	const file = "/etc/outrider/pod/annotations"
	tests := map[string]struct {
		before, now string // the annotations
		flags       map[string]string
		want        []Change
	}{
		"nothing": {before: `a="b"`, now: `a="c"`},
		"a log level by its annotation wins over the flag that is as old as the pod": {
			flags: map[string]string{"proxyLogLevel": "warning"},
			now:   `sidecar.istio.io/logLevel="debug"`,
			want:  []Change{{Setting: "log level", From: "warning", To: "debug"}},
		},
		"a log level that the annotation had from the beginning is the flag's affair": {
			flags:  map[string]string{"proxyLogLevel": "info"},
			before: `sidecar.istio.io/logLevel="info"`, now: `sidecar.istio.io/logLevel="info"`,
		},
		"how long to stay can change": {
			now:  `proxy.istio.io/config="terminationDrainDuration: 9s"`,
			want: []Change{{Setting: "terminationDrainDuration", From: "5s", To: "9s"}},
		},
		"worker threads cannot": {
			now:  `proxy.istio.io/config="concurrency: 7"`,
			want: []Change{{"concurrency", "2", "7", "Envoy makes its worker threads at its start: restart the pod"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Flags: tt.flags, Environ: pod, ReadFile: files(map[string]string{file: tt.before})}
			runs, err := Read(in)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := Annotations([]byte(tt.before))
			now, _ := Annotations([]byte(tt.now))
			in.ReadFile = files(map[string]string{file: tt.now})
			to, err := Read(in.Follow(before, now))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, Changes(runs, to)); diff != "" {
				t.Errorf("Changes (-want +got):\n%s", diff)
			}
		})
	}
}
