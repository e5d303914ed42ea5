package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
)

const copyName = "outrider-agent"

// newCopy returns the command copy, which brings the agent into containers whose image does not
// contain it.
func newCopy() *cobra.Command {
	return &cobra.Command{
		Use:     "copy DEST",
		Short:   "copy this program, for the gates of other containers",
		Long:    "Copies this program to DEST, a file or an existing folder. An existing file is replaced atomically: a program that runs from it goes on.",
		Example: "  outrider-agent copy /outrider/bin/outrider-agent",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &cli.UsageError{Err: fmt.Errorf("%d destinations, want one", len(args)), Hint: "as in outrider-agent copy /outrider/bin/outrider-agent"}
			}
			return copySelf(args[0])
		},
	}
}

func copySelf(dest string) error {
	dest = copyFile(dest)
	err := replaceBy("/proc/self/exe", dest)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("copying this program to %s: %w", dest, err)
	if hint := copyHint(err, filepath.Dir(dest)); hint != "" {
		err = &cli.UsageError{Err: err, Hint: hint}
	}
	return err
}

// copyFile returns the file that a destination means: dest itself, or a file in dest if that is a
// directory.
func copyFile(dest string) string {
	if info, err := os.Stat(dest); err == nil && info.IsDir() {
		return filepath.Join(dest, copyName)
	}
	return dest
}

// replaceBy replaces dest atomically with a copy of source.
func replaceBy(source, dest string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(dest), "."+copyName+"-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // does nothing after the rename
	_, err = io.Copy(out, in)
	// Any user of the pod may run the copy, whatever the umask of this process.
	err = errors.Join(err, out.Chmod(0o755), out.Close())
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), dest)
}

// copyHint returns advice to the pod's author on how to correct an error; empty if the author cannot.
func copyHint(err error, dir string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return dir + " is to be a volume that this container mounts"
	case errors.Is(err, syscall.EROFS):
		return "mount the volume of " + dir + " writable in this container (in the others, read-only)"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("user %d may not write into %s; an emptyDir volume lets every user", os.Getuid(), dir)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "the volume of " + dir + " is full: a memory volume is bounded by its sizeLimit and by the memory limits of the pod"
	}
	return ""
}
