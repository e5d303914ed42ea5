package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"outrider.dev/build/commands"
	"outrider.dev/test/tier"
)

var cache = flag.String("cache", "../../.cache", "`folder` with what make images and make images-all fetch")

// where is the folder in an image that contains the licences and the bill of materials.
const where = "/usr/share/doc/outrider"

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// The images are complete: for this machine's architecture, as "make images" builds them, and for all architectures
// if "make images-all" has fetched the parts. The agent's binary stands in for outriderd, which is also static, but
// takes minutes to link. The nightly run builds the images twice, and checks that they are equal.
func TestImages(t *testing.T) {
	all := []string{"-envoy", filepath.Join(*cache, "envoy", "envoy")}
	archs := []string{runtime.GOARCH}
	if _, err := os.Stat(filepath.Join(*cache, "libc-arm64", "version")); err != nil {
		t.Logf("only for %s: make images-all fetches the parts for both", runtime.GOARCH)
		if _, err := os.Stat(all[1]); err != nil {
			t.Skip("no Envoy: make deps")
		}
	} else {
		archs = []string{"amd64", "arm64"}
		all = []string{"-arch", "amd64,arm64", "-envoy", filepath.Join(*cache, "envoy-{arch}", "envoy"), "-libc", filepath.Join(*cache, "libc-{arch}")}
	}
	bin := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "outrider.dev/build/images").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, arch := range archs {
		dir := filepath.Join(bin, arch)
		if err := errors.Join(os.Mkdir(dir, 0o755), commands.BuildFor(t.Context(), commands.Target{System: "linux", Arch: arch}, dir, commands.Agent), os.Link(filepath.Join(dir, commands.Agent), filepath.Join(dir, commands.ControlPlane)),
			os.Link(filepath.Join(dir, commands.Agent), filepath.Join(dir, commands.Node))); err != nil {
			t.Fatal(err)
		}
	}
	var digests []string
	for range tier.Times(1, 2) {
		out := t.TempDir()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "images"), append(all, "-bin", filepath.Join(bin, "{arch}"), "-o", "oci:"+out)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, name := range []string{"outriderd", "outrider-proxy", "outrider-node"} {
			top := readIndex(t, filepath.Join(out, name))
			manifest, err := top.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, manifest.Manifests[0].Digest.String())
			if len(digests) > 3 {
				continue // of the second build only the digests are compared
			}
			images := []v1.Image{}
			index, err := top.ImageIndex(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			all, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range all.Manifests {
				images = append(images, readImage(t, index, d.Digest))
			}
			for i, arch := range archs {
				t.Run(name+" for "+arch, func(t *testing.T) {
					checkImage(t, name, arch, images[i], filepath.Join(out, name+"_"+arch+".cdx.json"))
				})
			}
		}
	}
	if again := digests[3:]; len(again) > 0 && !slices.Equal(digests[:3], again) {
		t.Errorf("made twice, the images are %s", digests)
	}
	t.Logf("made %d of 2 times", len(digests)/3)
}

func readIndex(t *testing.T, dir string) v1.ImageIndex {
	t.Helper()
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func readImage(t *testing.T, index v1.ImageIndex, digest v1.Hash) v1.Image {
	t.Helper()
	img, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// A content is the text of a file in an image, or the target of a symbolic link.
type content struct {
	text   []byte
	target string
}

func contents(t *testing.T, img v1.Image) map[string]content {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]content{}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		out["/"+h.Name] = content{text, h.Linkname}
	}
}

func checkImage(t *testing.T, name, arch string, img v1.Image, beside string) {
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	labels := config.Config.Labels
	for _, label := range []string{"source", "version", "revision", "licenses", "created", "title"} {
		if labels["org.opencontainers.image."+label] == "" {
			t.Errorf("no label %s: %v", label, labels)
		}
	}
	if config.Architecture != arch || config.OS != "linux" || config.Created.IsZero() {
		t.Errorf("the configuration is %+v", config)
	}
	files := contents(t, img)
	checkLibraries(t, arch, files)
	checkPrograms(t, name, config.Config, files)

	bill, err := os.ReadFile(beside)
	if err != nil || !bytes.Equal(bill, files[where+"/sbom.cdx.json"].text) {
		t.Errorf("the bill of materials in the image is not the one beside it: %v", err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(bill, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("%v: %s", err, bill)
	}
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
		if c.PURL == "" || c.Version == "" {
			t.Errorf("%+v has no version", c)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(file string) bool { return strings.HasPrefix(file, path.Join(where, c.Name)+"/") }) {
			t.Errorf("%s has no licence in the image", c.Name)
		}
	}
	for _, part := range []string{"envoy", "libc6"} {
		if slices.Contains(names, part) != (name == "outrider-proxy") {
			t.Errorf("the materials of %s are %s", name, names)
		}
	}
	if !slices.Contains(names, "golang.org/x/sys") || files[where+"/outrider.dev/LICENSE"].text == nil {
		t.Errorf("the materials of %s are %s, or its own licence is missing", name, names)
	}
}

// checkLibraries checks that each program and library is for the architecture, and that the image contains the
// libraries that it loads.
func checkLibraries(t *testing.T, arch string, files map[string]content) {
	libraries := map[string]bool{}
	for name := range files { // any order: the result is a map
		libraries[path.Base(name)] = true
	}
	programs := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !bytes.HasPrefix(files[name].text, []byte(elf.ELFMAG)) {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(files[name].text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		programs++
		if f.Machine != machines[arch] {
			t.Errorf("%s is for %s", name, f.Machine)
		}
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, lib := range needed {
			if !libraries[lib] {
				t.Errorf("%s needs %s, which the image does not have", name, lib)
			}
		}
		for _, p := range f.Progs {
			if p.Type != elf.PT_INTERP {
				continue
			}
			loader, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			if file := strings.TrimRight(string(loader), "\x00"); files[file].text == nil {
				t.Errorf("%s is loaded by %s, which the image does not have", name, file)
			}
		}
	}
	if programs == 0 {
		t.Error("no programs were found")
	}
}

// contained lists, for each image, its user, its entrypoint, and the files in /usr/local/bin with the targets of
// links.
var contained = map[string]struct {
	user, entrypoint string
	programs         map[string]string
}{
	"outriderd":      {"65532", "outriderd", map[string]string{"outriderd": ""}},
	"outrider-proxy": {"1337", "outrider-agent", map[string]string{"outrider-agent": "", "envoy": "", "pilot-agent": "outrider-agent", "istio-iptables": "outrider-agent"}},
	"outrider-node":  {"0", "outrider-node", map[string]string{"outrider-node": "", "outrider-agent": ""}},
}

func checkPrograms(t *testing.T, name string, config v1.Config, files map[string]content) {
	got := map[string]string{}
	for file, c := range files { // any order: the result is a map
		if program, ok := strings.CutPrefix(file, "/usr/local/bin/"); ok {
			got[program] = c.target
		}
	}
	want := contained[name]
	if !maps.Equal(got, want.programs) || config.User != want.user || !slices.Equal(config.Entrypoint, []string{"/usr/local/bin/" + want.entrypoint}) {
		t.Errorf("the image has %v, user %s, entry point %s; want %+v", got, config.User, config.Entrypoint, want)
	}
}
