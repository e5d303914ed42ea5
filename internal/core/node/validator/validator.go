// Package validator reports whether a node's containerd has NRI's validator switched on. The validator creates no
// container without the plugins that its pod requires. If another plugin keeps ours from connecting, only the
// validator prevents a container from starting without its gate.
package validator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"outrider.dev/internal/base/contract"
)

// Limits of a configuration: containerd's own has 10 KiB, and imports a few files.
const (
	maxBytes = 1 << 20
	maxFiles = 64
)

// config contains the parts of containerd's configuration, versions 2 and 3, that State reads
// (internal/nri/config.go of containerd 2.2).
type config struct {
	Imports []string
	Plugins struct {
		NRI struct {
			Validator struct{ Enable bool } `toml:"default_validator"`
		} `toml:"io.containerd.nri.v1.nri"`
	}
}

// State returns a value for the label [contract.NodeValidator], and an error if the value cannot be determined.
// The runtime creates its socket when it starts, so a configuration that is newer than the socket is not in use
// yet.
func State(path, socket string) (string, error) {
	on, written, err := read(path)
	if err != nil {
		return contract.ValidatorUnknown, err
	}
	if !on {
		return contract.ValidatorOff, nil
	}
	began, err := os.Stat(socket)
	if err != nil {
		return contract.ValidatorUnknown, err
	}
	if written.After(began.ModTime()) {
		return contract.ValidatorRestart, nil
	}
	return contract.ValidatorOn, nil
}

// read follows imports as containerd does (LoadConfig of cmd/containerd/server/config): a later file
// overrides an earlier one, except that false does not override true. So one file with true is enough.
func read(path string) (on bool, written time.Time, err error) {
	files := []string{filepath.Clean(path)}
	for i := 0; i < len(files); i++ {
		if i == maxFiles {
			return false, written, fmt.Errorf("%s imports over %d files", path, maxFiles)
		}
		c, info, err := file(files[i])
		if err != nil {
			return false, written, err
		}
		if c.Plugins.NRI.Validator.Enable {
			return true, info.ModTime(), nil
		}
		for _, name := range c.Imports {
			found, err := imported(path, files[i], name)
			if err != nil {
				return false, written, err
			}
			for _, f := range found {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
	}
	return false, written, nil
}

// imported returns the files that an import names. On the node only the folder of the first file is
// readable.
func imported(path, by, name string) ([]string, error) {
	name = filepath.Clean(name)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(by), name)
	}
	if !strings.HasPrefix(name, filepath.Dir(path)+"/") {
		return nil, fmt.Errorf("%s imports %s, which is not below %s", by, name, filepath.Dir(path))
	}
	if !strings.Contains(name, "*") {
		return []string{name}, nil
	}
	return filepath.Glob(name)
}

func file(path string) (c config, info os.FileInfo, err error) {
	if info, err = os.Stat(path); err != nil {
		return c, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return c, nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, nil, err
	}
	if _, err := toml.Decode(string(text), &c); err != nil {
		return c, nil, fmt.Errorf("%s is no configuration of containerd", path) // the text is left out, because it may contain credentials for a registry
	}
	return c, info, nil
}
