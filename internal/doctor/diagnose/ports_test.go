package diagnose

import (
	"strings"
	"testing"
)

// Of a container that ended, and of which there is no log, it is said that another one declares its port.
func TestPortsOfTwo(t *testing.T) {
	const port, other = "ports: [{containerPort: 9100}]", "ports: [{containerPort: 9101}]"
	for name, c := range map[string]struct {
		pod  smallPod
		says bool
	}{
		"the same port":        {smallPod{status: "phase: Running", app: port, appIs: runs, side: port, sideIs: failed}, true},
		"another port":         {smallPod{status: "phase: Running", app: port, appIs: runs, side: other, sideIs: failed}, false},
		"the same port of UDP": {smallPod{status: "phase: Running", app: "ports: [{containerPort: 9100, protocol: UDP}]", appIs: runs, side: "ports: [{containerPort: 9100, protocol: UDP}]", sideIs: failed}, false},
		"a log":                {smallPod{status: "phase: Running", app: port, appIs: runs, side: port, sideIs: failed, files: map[string]string{"side.previous.log": "2026-03-02T10:04:59Z FATAL no licence\n"}}, false},
	} {
		r := diagnoseFolder(t, folderOf(t, c.pod.texts()))
		if f := r.Findings[0]; strings.Contains(f.Sentence, "both it and app declare port 9100") != c.says || f.Code != "app-crash" || (f.Confidence == "possible") != (c.pod.files == nil) {
			t.Errorf("%s: %s", name, f.Sentence)
		}
	}
}

// A log that says that a port is taken, and not which, means one that both declare.
func TestATakenPortWithoutNumber(t *testing.T) {
	for port, says := range map[string]bool{"9100": true, "9101": false} {
		p := smallPod{status: "phase: Running", app: "ports: [{containerPort: " + port + "}]", appIs: runs, side: "ports: [{containerPort: 9100}]", sideIs: failed,
			files: map[string]string{"side.previous.log": "2026-03-02T10:04:59Z bind: Address already in use\n"}}
		r := diagnoseFolder(t, folderOf(t, p.texts()))
		if f := r.Findings[0]; f.Code != "app-crash" || strings.Contains(f.Sentence, "most likely 9100, which app has") != says {
			t.Errorf("%s: %s", port, f.Sentence)
		}
	}
}
