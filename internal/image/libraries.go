package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs are the loader's, on Debian and most other distributions.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// addLibraries adds to files the loader and the libraries that a program needs, each under
// its local path. Other files need none.
func addLibraries(files map[string]string, program string) error {
	needs, err := libraries(program)
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", program, err)
	}
	for _, lib := range needs {
		if _, ok := files[lib]; ok {
			continue
		}
		files[lib] = lib
		if err := addLibraries(files, lib); err != nil {
			return err
		}
	}
	return nil
}

func libraries(program string) ([]string, error) {
	f, err := elf.Open(program)
	if formatErr := (*elf.FormatError)(nil); errors.As(err, &formatErr) || errors.Is(err, io.EOF) {
		return nil, nil // not a program
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
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
		lib, err := findLibrary(name)
		if err != nil {
			return nil, err
		}
		found = append(found, lib)
	}
	return found, nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %s", name, strings.Join(libraryDirs, ", "))
}
