package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Find fills in the empty paths. It looks for the programs in the folder of outrider itself, whose path is own,
// and in PATH. If a program is missing, it returns an error and the flag that sets the path.
func (p *Programs) Find(own string) (flag string, err error) {
	p.Outrider = own
	here := filepath.Dir(own)
	for _, program := range []struct {
		name, flag string
		path       *string
		folders    []string
	}{
		{"outrider-agent", "--agent", &p.Agent, []string{here}},
		{"outriderd", "--control-plane", &p.ControlPlane, []string{here}},
		{"envoy", "--envoy", &p.Envoy, []string{here, filepath.Join(here, "..", ".cache", "envoy")}}, // make deps installs Envoy there
	} {
		if *program.path == "" {
			if *program.path = find(program.name, program.folders); *program.path == "" {
				return program.flag, fmt.Errorf("there is no %s next to %s, nor in PATH", program.name, own)
			}
		}
		if *program.path, err = filepath.Abs(*program.path); err != nil {
			return program.flag, err
		}
	}
	return "", nil
}

// find returns the path of a program in one of the folders or in PATH, or an empty string.
func find(name string, folders []string) string {
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}
