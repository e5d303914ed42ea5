package cluster

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// sharedBuilds is the number of builds of a program that are kept, enough for a user who works on several branches.
const sharedBuilds = 3

// shared returns the path of the build of p that all checkouts of the user share, in
// ${XDG_CACHE_HOME:-~/.cache}/outrider/cluster, and whether it exists. The path contains a digest of the inputs, the
// Go release and the platform.
func (p program) shared(inputs string) (path string, found bool, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", false, err
	}
	if cache, err = visible(cache); err != nil {
		return "", false, fmt.Errorf("%w; XDG_CACHE_HOME names it", err)
	}
	name := filepath.Base(filepath.Dir(p.output)) + "-" + filepath.Base(p.output) // such as v1.34-kube
	sum := sha256.Sum256([]byte(inputs + runtime.Version() + runtime.GOARCH))
	path = filepath.Join(cache, "outrider", "cluster", name, fmt.Sprintf("%x", sum[:8]))
	if all, _ := filepath.Glob(path + "-*"); len(all) > 0 { // Glob fails only for an invalid pattern
		return all[0], true, nil
	}
	return path + "-built", false, nil
}

// prune keeps the [sharedBuilds] builds that were used last, and removes the others.
func prune(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "[0-9a-f]*-*")) // Glob fails only for an invalid pattern
	used := func(file string) int64 {
		if info, err := os.Stat(file); err == nil {
			return info.ModTime().UnixNano()
		}
		return 0 // another process has removed it
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(used(b), used(a)) })
	for _, file := range files[min(sharedBuilds, len(files)):] {
		os.Remove(file)
	}
}
