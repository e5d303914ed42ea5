package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CNIPlugins and CNIConfig are the directories into which a DaemonSet installs a CNI plugin and its
// configuration. They are writable; the machine does not see what is written there.
const (
	CNIPlugins = "/opt/cni/bin"
	CNIConfig  = "/etc/cni/net.d"
)

// MachineCNIPlugins is the directory into which the distribution installs the plugins.
const MachineCNIPlugins = "/usr/lib/cni"

func prepareCNI(c Config) error {
	if err := makeDirectories(CNIPlugins); err != nil {
		return err
	}
	if err := overlay(MachineCNIPlugins, CNIPlugins); err != nil {
		return err
	}
	if err := overlayEtc(); err != nil {
		return err
	}
	config, err := os.ReadFile(c.Conf("cni.conflist"))
	if err != nil {
		return err
	}
	return errors.Join(makeDirectories(CNIConfig), os.WriteFile(filepath.Join(CNIConfig, "10-pods.conflist"), config, 0o644))
}

// overlay mounts a writable view of the directory lower at the path target, which may be the same. All changes are
// stored in ownDir, not in the directory lower.
func overlay(lower, target string) error {
	layer := filepath.Join(ownDir, "overlay", strings.ReplaceAll(target, "/", "."))
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	if err := makeDirectories(upper, work); err != nil {
		return err
	}
	err := syscall.Mount("overlay", target, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work)
	if err != nil {
		return &os.PathError{Op: "mounting an overlay on", Path: target, Err: err}
	}
	return nil
}

// overlayEtc gives the cluster its own writable /etc. If this machine is a container, files such as
// /etc/hosts are mounts, which an overlay does not include, so they are mounted again.
func overlayEtc() error {
	all, err := mounts()
	if err != nil {
		return err
	}
	below := filepath.Join(ownDir, "etc")
	if err := errors.Join(makeDirectories(below), mount("/etc", below, "bind", syscall.MS_BIND|syscall.MS_REC)); err != nil {
		return err
	}
	// Otherwise mounts on /etc would appear in this copy too, and unmounting the copy would unmount them from /etc.
	if err := mount("", below, "", syscall.MS_REC|syscall.MS_PRIVATE); err != nil {
		return err
	}
	if err := overlay("/etc", "/etc"); err != nil {
		return err
	}
	for _, m := range all {
		file, ok := strings.CutPrefix(m.point, "/etc/")
		if !ok {
			continue
		}
		if err := mount(filepath.Join(below, file), m.point, "bind", syscall.MS_BIND); err != nil {
			return err
		}
	}
	return syscall.Unmount(below, syscall.MNT_DETACH)
}
