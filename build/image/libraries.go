package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs are the directories that the loader searches on Debian and most other distributions.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// addLibraries adds the loader and the libraries of a program to the map files, each with its path in the
// image. It does nothing if the file is not a program.
func (img Image) addLibraries(files map[string]string, program string) error {
	needs, err := img.libraries(program)
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", program, err)
	}
	for _, lib := range needs {
		if _, ok := files[lib]; ok {
			continue
		}
		if files[lib], err = img.local(lib); err != nil {
			return fmt.Errorf("libraries of %s: %w", program, err)
		}
		if err := img.addLibraries(files, files[lib]); err != nil {
			return err
		}
	}
	return nil
}

// libraries returns the paths of a program's loader and of the libraries that it loads directly.
func (img Image) libraries(program string) ([]string, error) {
	f, err := elf.Open(program)
	if formatErr := (*elf.FormatError)(nil); errors.As(err, &formatErr) || errors.Is(err, io.EOF) {
		return nil, nil // not a program
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if want, ok := machines[img.architecture()]; ok && f.Machine != want {
		return nil, fmt.Errorf("it is for %s, and the image for %s", f.Machine, want)
	}
	var found []string
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, err
		}
		found = append(found, strings.TrimRight(string(loader), "\x00"))
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		lib, err := img.findLibrary(name)
		if err != nil {
			return nil, err
		}
		found = append(found, lib)
	}
	return found, nil
}

func (img Image) findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		if _, err := img.local(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %s%s", name, img.Root, strings.Join(libraryDirs, ", "+img.Root))
}

// local returns the local file for a path in the image. It resolves absolute links within Root, because links in
// a Debian package are absolute.
func (img Image) local(path string) (string, error) {
	for range 8 {
		file := filepath.Join(img.Root, path)
		info, err := os.Lstat(file)
		if err != nil {
			return "", err
		}
		if img.Root == "" || info.Mode()&fs.ModeSymlink == 0 {
			return file, nil
		}
		target, err := os.Readlink(file)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many links", path)
}
