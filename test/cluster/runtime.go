package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Runtimes lists the available container runtimes; the first is the default. "containerd" is the
// distribution's. "containerd-2" is built from its Go module; it supports NRI with its default
// validator, and image volumes.
var Runtimes = []string{"containerd", containerd2}

const containerd2 = "containerd-2"

// withRuntime sets the default runtime, and enables the Kubernetes features that only this runtime supports. It fails
// for an unknown runtime.
func (o Options) withRuntime() (Options, error) {
	if o.Runtime == "" {
		o.Runtime = Runtimes[0]
	}
	if !slices.Contains(Runtimes, o.Runtime) {
		return o, fmt.Errorf("no container runtime %s here, only %s", o.Runtime, strings.Join(Runtimes, ", "))
	}
	// Image volumes are beta and off by default up to v1.35, stable in v1.36; containerd supports them since 2.1.
	const imageVolumes = "ImageVolume"
	if o.Runtime == containerd2 && o.Version == "v1.34" && !slices.Contains(o.Features, imageVolumes) {
		o.Features = append(slices.Clip(o.Features), imageVolumes)
	}
	return o, nil
}

// runtimeDir returns the directory into which the programs of the runtime are built; "" for the distribution's runtime.
func runtimeDir(o Options) string {
	if o.Runtime != containerd2 {
		return ""
	}
	return filepath.Join(o.Cache, o.Runtime)
}

// runtimePrograms returns the programs of the runtime to build. The shim is a separate binary
// because one runs for each pod, so its size matters.
func runtimePrograms(source string, o Options) ([]program, error) {
	if runtimeDir(o) == "" {
		return nil, nil
	}
	const module, modfile = "github.com/containerd/containerd/v2", "go.mod"
	dir := filepath.Join(source, "containerd2")
	version, err := requiredVersion(filepath.Join(dir, modfile), module)
	if err != nil {
		return nil, err
	}
	var all []program
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		all = append(all, program{
			name: name + " " + version, dir: dir, modfile: modfile, pkg: module + "/cmd/" + name,
			tags:    "no_btrfs,no_devmapper,no_zfs,no_tracing", // features that no test needs
			ldflags: "-X " + module + "/version.Version=" + version,
			output:  filepath.Join(runtimeDir(o), name),
		})
	}
	return all, nil
}
