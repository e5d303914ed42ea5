// Package parts lists the parts of a shipped artifact: the Go modules that its programs link, as recorded in the
// programs themselves, Envoy, and the C library. It writes their licences, and a software bill of materials in
// the CycloneDX format. The same programs always give the same bytes.
package parts

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// A Part is a part of an artifact: a Go module, a program, or a package of a distribution.
type Part struct {
	Name, Version string
	URL           string // package URL: pkg:golang/...
	SHA256        string // of the file, if the part is a file
	Licences      string // folder with the licence texts; empty: not known
}

// Of returns the modules that programs link, sorted by name, with the folders of their sources. The first is the
// module of the programs themselves. It fails unless the programs were built from the module in the working
// directory.
func Of(ctx context.Context, programs ...string) ([]Part, error) {
	seen := map[string]Part{}
	own := ""
	for _, file := range programs {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		own = info.Main.Path
		for _, m := range info.Deps {
			if m.Replace != nil {
				if strings.HasPrefix(m.Replace.Path, "./") {
					continue // a folder of this repository is not a separate part
				}
				m = m.Replace
			}
			seen[m.Path] = Part{Name: m.Path, Version: m.Version, URL: "pkg:golang/" + m.Path + "@" + m.Version}
		}
	}
	seen[own] = Part{Name: own}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all: %w", err)
	}
	var out []Part
	for line := range strings.Lines(string(text)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if p, ok := seen[path]; ok {
			p.Licences = dir
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Part) int {
		return cmp.Or(-cmp.Compare(btoi(a.Name == own), btoi(b.Name == own)), cmp.Compare(a.Name, b.Name))
	})
	if len(out) != len(seen) {
		return nil, fmt.Errorf("%d of %d modules of %s are found: it was built of another module", len(out), len(seen), programs)
	}
	return out, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Licences copies the licence texts of each part to the folder dir/NAME. It fails if the folder Part.Licences of
// a part contains none.
func Licences(dir string, all []Part) error {
	for _, p := range all {
		if p.Licences == "" {
			continue
		}
		if err := licences(p.Licences, filepath.Join(dir, filepath.FromSlash(p.Name))); err != nil {
			return fmt.Errorf("licences of %s: %w", p.Name, err)
		}
	}
	return nil
}

func licences(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	n := 0
	for _, e := range entries {
		upper := strings.ToUpper(e.Name())
		if !e.Type().IsRegular() || !slices.ContainsFunc([]string{"LICEN", "COPYING", "COPYRIGHT", "NOTICE"}, func(w string) bool { return strings.HasPrefix(upper, w) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		if err := errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(filepath.Join(to, e.Name()), text, 0o644)); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return fmt.Errorf("there is none in %s", from)
	}
	return nil
}

// Materials writes the bill of materials of an artifact. at is the time of the commit. There is no serial number,
// because that would differ each time.
func Materials(w io.Writer, artifact, version string, at time.Time, all []Part) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: at.UTC().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: artifact, Type: cdx.ComponentTypeApplication, Name: artifact, Version: version},
	}
	var components []cdx.Component
	var refs []string
	for _, p := range all {
		if p.URL == "" {
			continue // the artifact itself
		}
		c := cdx.Component{BOMRef: p.URL, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: p.URL}
		if p.SHA256 != "" {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.SHA256}}
		}
		components, refs = append(components, c), append(refs, p.URL)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: artifact, Dependencies: &refs}}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.Encode(bom)
}
