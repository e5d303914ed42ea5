// Command images writes Outrider's container images as OCI tarballs, without a container
// engine: outriderd, and outrider-proxy, which holds Envoy, its libraries and the agent.
// The same input gives the same bytes. "make images" calls it.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/image"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "images: error: %v\n", err)
		os.Exit(1)
	}
}

// planeUser is the user of outriderd's image: a number, so that a pod can demand
// runAsNonRoot. The proxy's is [contract.ProxyUser].
const planeUser = "65532"

func run(args []string) error {
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	out := fs.String("out", "bin/images", "`directory` for the tarballs")
	bin := fs.String("bin", "bin", "`directory` of the built commands")
	envoy := fs.String("envoy", ".cache/envoy/envoy", "Envoy's `binary`")
	hub := fs.String("hub", "outrider.dev", "registry and path before the images' `names`")
	tag := fs.String("tag", "dev", "`tag` of the images")
	if err := fs.Parse(args); err != nil {
		return err
	}
	licences, err := os.MkdirTemp("", "licences.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(licences)
	if err := gather(licences, *envoy); err != nil {
		return fmt.Errorf("gathering licences: %w", err)
	}
	for _, img := range []image.Image{
		{
			Name:       *hub + "/outriderd:" + *tag,
			Files:      map[string]string{"/usr/local/bin/outriderd": filepath.Join(*bin, "outriderd"), "/usr/share/doc/outrider": licences},
			Entrypoint: []string{"/usr/local/bin/outriderd"},
			User:       planeUser,
		},
		{
			Name: *hub + "/outrider-proxy:" + *tag,
			Files: map[string]string{
				"/usr/local/bin/outrider-agent": filepath.Join(*bin, "outrider-agent"),
				"/usr/local/bin/envoy":          *envoy,
				"/usr/share/doc/outrider":       licences,
			},
			Links: map[string]string{
				"/usr/local/bin/pilot-agent":    "outrider-agent",
				"/usr/local/bin/istio-iptables": "outrider-agent",
			},
			Entrypoint: []string{"/usr/local/bin/outrider-agent"},
			User:       strconv.Itoa(contract.ProxyUser),
		},
	} {
		if err := write(img, *out); err != nil {
			return err
		}
	}
	return nil
}

func write(img image.Image, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Base(strings.TrimSuffix(img.Name, img.Name[strings.LastIndex(img.Name, ":"):]))
	file := filepath.Join(dir, name+".tar")
	if err := img.WriteFile(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("%s  %s  %.1f MiB\n", file, img.Name, float64(info.Size())/(1<<20))
	return nil
}

// gather copies the licences of all parts of the images to dir: ours, Envoy's, the C
// library's, and that of each Go module that the commands link.
func gather(dir, envoy string) error {
	modules, err := linked()
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := copyLicences(m.dir, filepath.Join(dir, filepath.FromSlash(m.path))); err != nil {
			return err
		}
	}
	// Only the pinned package of Envoy has its licence in the same folder.
	found, err := filepath.Glob(filepath.Join(filepath.Dir(envoy), "*.dist-info", "licenses"))
	if err != nil {
		return err
	}
	for _, from := range found {
		if err := copyLicences(from, filepath.Join(dir, "envoy")); err != nil {
			return err
		}
	}
	if err := copyFile("/usr/share/doc/libc6/copyright", filepath.Join(dir, "libc6", "copyright")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

type module struct{ path, dir string }

func linked() ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", "./cmd/...")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var out []module
	for line := range strings.Lines(string(text)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			out = append(out, module{path, dir})
		}
	}
	slices.SortFunc(out, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return slices.Compact(out), nil
}

// copyLicences copies the licence files of a project. Having none is an error.
func copyLicences(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	n := 0
	for _, e := range entries {
		upper := strings.ToUpper(e.Name())
		if !e.Type().IsRegular() || !slices.ContainsFunc([]string{"LICEN", "COPYING", "NOTICE"}, func(w string) bool { return strings.HasPrefix(upper, w) }) {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return fmt.Errorf("there is no licence in %s", from)
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), 0o644)
}
