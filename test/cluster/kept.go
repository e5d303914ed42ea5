package cluster

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// kept are the builds of a program that the user's checkouts share. Each is one file, named after
// its inputs and its contents: it comes in one step, and one that is broken is found.
type kept struct {
	dir    string // in ${XDG_CACHE_HOME:-~/.cache}/outrider/cluster; empty: the user has none
	inputs string
}

// keptBuilds is how many builds of a program are kept: more than the branches that a user
// works on at once.
const keptBuilds = 3

// kept returns the builds of p. Those of another Go release or for another machine are others.
func (p program) kept(inputs string) kept {
	cache, err := os.UserCacheDir()
	if err != nil {
		return kept{}
	}
	name := filepath.Base(filepath.Dir(p.output)) + "-" + filepath.Base(p.output) // v1.34-kube
	sum := sha256.Sum256([]byte(inputs + runtime.Version() + runtime.GOARCH))
	return kept{filepath.Join(cache, "outrider", "cluster", name), fmt.Sprintf("%x", sum[:8])}
}

// take makes output a copy of the build, if there is one that is whole.
func (k kept) take(output string) bool {
	files, _ := filepath.Glob(filepath.Join(k.dir, k.inputs+"-*")) // fails for a wrong pattern only
	for _, file := range files {
		temp, sum, err := copied(file, filepath.Dir(output))
		if err != nil {
			continue
		}
		defer os.Remove(temp)
		if !strings.HasSuffix(file, "-"+sum) {
			os.Remove(file)
			continue
		}
		os.Chtimes(file, time.Time{}, time.Now()) // it is the last to be removed
		if os.Rename(temp, output) == nil {
			return true
		}
	}
	return false
}

// put keeps output, and removes what was not used for the longest time.
func (k kept) put(output string) error {
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return err
	}
	temp, sum, err := copied(output, k.dir)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(k.dir, k.inputs+"-"+sum)); err != nil {
		os.Remove(temp)
		return err
	}
	files, err := filepath.Glob(filepath.Join(k.dir, "*"))
	used := func(file string) int64 {
		if info, err := os.Stat(file); err == nil {
			return info.ModTime().UnixNano()
		}
		return 0 // another process has removed it
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(used(b), used(a)) })
	for _, file := range files[min(keptBuilds, len(files)):] {
		os.Remove(file)
	}
	return err
}

// copied copies a program into a new file of dir, and returns the digest of what it copied.
func copied(from, dir string) (temp, sum string, err error) {
	source, err := os.Open(from)
	if err != nil {
		return "", "", err
	}
	defer source.Close()
	target, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", "", err
	}
	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(target, digest), source)
	if err == nil {
		err = target.Chmod(0o755)
	}
	if e := target.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(target.Name())
	}
	return target.Name(), fmt.Sprintf("%x", digest.Sum(nil)), err
}
