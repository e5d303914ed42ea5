package podspec

import (
	"errors"
	"testing"

	"outrider.dev/startup"
)

// A pod that uses a name or a place of the gates' for something else is not written: the
// agent would be run from a foreign volume, or states shared by all pods of a node.
func TestWhatIsTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		volumes, mounts string
		want            TakenError
	}{
		"a directory of the gate":  {"{name: data, emptyDir: {}}", "{name: data, mountPath: /outrider/bin}", TakenError{"data", "app", "/outrider/bin"}},
		"written otherwise":        {"{name: data, emptyDir: {}}", "{name: data, mountPath: //outrider/own/}", TakenError{"data", "app", "//outrider/own/"}},
		"what it is in":            {"{name: data, emptyDir: {}}", "{name: data, mountPath: /outrider}", TakenError{"data", "app", "/outrider"}},
		"the states, on the node":  {"{name: outrider-state, hostPath: {path: /data}}", "", TakenError{Volume: "outrider-state"}},
		"the program, on the disk": {"{name: outrider-bin, emptyDir: {}}", "", TakenError{Volume: "outrider-bin"}},
		"nothing":                  {"{name: data, emptyDir: {}}", "{name: data, mountPath: /outriders}", TakenError{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t, "spec: {volumes: ["+tt.volumes+"], containers: [{name: outrider-proxy, image: p}, {name: app, image: a, command: [/app], volumeMounts: ["+tt.mounts+"]}]}")
			plan := startup.Plan{Edges: []startup.Edge{{From: OurProxy, To: "app", After: startup.Healthy, By: startup.Gate}}}
			out, err := Write(p, plan, Options{})
			var taken *TakenError
			if tt.want == (TakenError{}) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Write(out, plan, Options{}); err != nil {
					t.Errorf("written again: %v", err)
				}
				return
			}
			if !errors.As(err, &taken) || *taken != tt.want {
				t.Errorf("%v, want %+v", err, tt.want)
			}
		})
	}
}
