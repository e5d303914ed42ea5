package cluster

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/test/cluster/internal/node"
)

func TestEveryVersionSaysWhatItIs(t *testing.T) {
	for _, version := range Versions {
		p, err := kubeProgram("kube", version, "out")
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(p.ldflags, ".gitVersion="+version+".") {
			t.Errorf("%s: ldflags lack the release: %s", version, p.ldflags)
		}
		if _, err := p.inputs(); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigIsComplete(t *testing.T) {
	c := node.Config{Dir: t.TempDir(), Bin: "/bin", Group: "outrider-test-0"}
	s := state{Dir: c.Dir}
	if err := writeConfig(c, s.configFile(), Options{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(c.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if len(text) == 0 || strings.Contains(string(text), "<no value>") {
			t.Errorf("%s has a gap:\n%s", path, text)
		}
		if ext := filepath.Ext(path); (ext == ".json" || ext == ".conflist") && !json.Valid(text) {
			t.Errorf("%s is no JSON:\n%s", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	loaded, err := node.Load(s.configFile())
	if err != nil || loaded.Dir != c.Dir || loaded.Group != c.Group {
		t.Errorf("Load: %+v, %v; want %+v", loaded, err, c)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    string // substring of the error
	}{
		"an unknown version":          {Options{Version: "v1.2"}, "only v1.34, v1.36"},
		"an unknown runtime":          {Options{Runtime: "podman"}, "only containerd, containerd-2"},
		"a directory that is hidden":  {Options{Dir: "/var/lib/x"}, "below /var/lib"},
		"a hidden directory, written": {Options{Dir: "/tmp/../run"}, "below /run"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if dir, err := tt.options.Directory(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Directory: %q, %v; want an error with %q", dir, err, tt.want)
			}
		})
	}
}

func TestStateIsOfOneProcess(t *testing.T) {
	s := newState(t.TempDir(), "v1.34", "")
	if s.alive() {
		t.Error("a cluster without a process is alive")
	}
	started, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s.PID, s.Started = os.Getpid(), started
	if !s.alive() {
		t.Error("this process is not alive")
	}
	s.Started += "0"
	if s.alive() {
		t.Error("a process that started at another time is taken for the cluster")
	}
}
