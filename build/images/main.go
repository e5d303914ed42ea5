// Command images writes Outrider's container images without a container engine: outriderd; outrider-proxy, which
// contains Envoy, its libraries and the agent; and outrider-node, which also contains the agent, because it
// installs that for pods. The same commit always gives the same bytes. "make images" and "make images-all" call
// it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/build/image"
	"outrider.dev/build/parts"
	"outrider.dev/internal/base/contract"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run writes the images and returns the exit status: 0 if they are written, 1 if that fails, 2 for wrong
// arguments.
func run(ctx context.Context, args []string) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "images: error: %v\n", err)
		return 2
	}
	if err := o.write(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "images: error: %v\n", err)
		return 1
	}
	return 0
}

// planeUser is the user in outriderd's image. It is a number, because the kubelet can check runAsNonRoot only for
// a number. The user in the proxy's image is [contract.ProxyUser].
const planeUser = "65532"

// where is the folder in an image that contains licences and the bill of materials.
const where = "/usr/share/doc/outrider"

type options struct {
	archs                 []string
	bin, envoy, libc      string // paths, in which {arch} is replaced by the architecture
	out, hub, tag, source string
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	arch := fs.String("arch", runtime.GOARCH, "`architectures` of the images: amd64,arm64")
	fs.StringVar(&o.out, "o", "bin/images", "`where` to: a folder for tarballs of one architecture, or oci:FOLDER for OCI layouts")
	fs.StringVar(&o.bin, "bin", "bin", "`folder` of the built commands; {arch} stands for the architecture, here and below")
	fs.StringVar(&o.envoy, "envoy", ".cache/envoy/envoy", "Envoy's `binary`")
	fs.StringVar(&o.libc, "libc", "", "`folder` with the C library that build/libc.sh makes; default: this machine's own is used")
	fs.StringVar(&o.hub, "hub", "outrider.dev", "registry and path before the images' `names`")
	fs.StringVar(&o.tag, "tag", "dev", "`tag` of the images")
	fs.StringVar(&o.source, "source", "https://outrider.dev", "`URL` of the sources, for the label")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.archs = strings.Split(*arch, ",")
	slices.Sort(o.archs)
	for _, a := range o.archs {
		if a != "amd64" && a != "arm64" {
			return o, fmt.Errorf("-arch: %q must be amd64 or arm64", a)
		}
		if a != runtime.GOARCH && o.libc == "" {
			return o, fmt.Errorf("-arch %s needs -libc: this machine's C library is for %s", a, runtime.GOARCH)
		}
	}
	if len(o.archs) > 1 && !strings.HasPrefix(o.out, "oci:") {
		return o, errors.New("-o: a tarball has one architecture: want oci:FOLDER for several")
	}
	if len(fs.Args()) > 0 || len(slices.Compact(slices.Clone(o.archs))) != len(o.archs) {
		return o, errors.New("there are arguments, or the same architecture twice")
	}
	return o, nil
}

func (o options) write(ctx context.Context) error {
	docs, err := os.MkdirTemp("", "docs.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(docs)
	stamp := commands.StampOf(ctx)
	byName := map[string][]image.Image{}
	for _, arch := range o.archs {
		for _, img := range o.images(arch) {
			name := filepath.Base(img.Name)
			doc := filepath.Join(docs, arch, name)
			img.Name += ":" + o.tag
			img.Created = stamp.Time
			img.Labels = map[string]string{
				"org.opencontainers.image.title":    name,
				"org.opencontainers.image.source":   o.source,
				"org.opencontainers.image.version":  stamp.Version,
				"org.opencontainers.image.revision": stamp.Commit,
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.created":  stamp.Time.Format(time.RFC3339),
			}
			if err := o.document(ctx, doc, arch, name, stamp, img.Files); err != nil {
				return fmt.Errorf("%s for %s: %w", name, arch, err)
			}
			img.Files[where] = doc
			byName[name] = append(byName[name], img)
		}
	}
	for _, name := range []string{"outriderd", "outrider-proxy", "outrider-node"} {
		if err := o.publish(name, docs, byName[name]); err != nil {
			return err
		}
	}
	return nil
}

// images returns the images for an architecture.
func (o options) images(arch string) []image.Image {
	at := func(path string) string { return strings.ReplaceAll(path, "{arch}", arch) }
	bin, root := at(o.bin), at(o.libc)
	return []image.Image{
		{
			Name: o.hub + "/outriderd", Arch: arch, Root: root,
			Files:      map[string]string{"/usr/local/bin/outriderd": filepath.Join(bin, "outriderd")},
			Entrypoint: []string{"/usr/local/bin/outriderd"},
			User:       planeUser,
		},
		{
			Name: o.hub + "/outrider-proxy", Arch: arch, Root: root,
			Files: map[string]string{
				"/usr/local/bin/outrider-agent": filepath.Join(bin, "outrider-agent"),
				"/usr/local/bin/envoy":          at(o.envoy),
			},
			Links: map[string]string{
				"/usr/local/bin/pilot-agent":    "outrider-agent",
				"/usr/local/bin/istio-iptables": "outrider-agent",
			},
			Entrypoint: []string{"/usr/local/bin/outrider-agent"},
			User:       strconv.Itoa(contract.ProxyUser),
		},
		{
			Name: o.hub + "/outrider-node", Arch: arch, Root: root,
			Files: map[string]string{
				"/usr/local/bin/outrider-node":  filepath.Join(bin, "outrider-node"),
				"/usr/local/bin/outrider-agent": filepath.Join(bin, "outrider-agent"),
			},
			Entrypoint: []string{"/usr/local/bin/outrider-node"},
			User:       "0",
		},
	}
}

// document writes the licences and the bill of materials of an image to a folder dir. The parts of an image are
// the modules of our programs, Envoy and the C library.
func (o options) document(ctx context.Context, dir, arch, name string, stamp commands.Stamp, files map[string]string) error {
	var programs []string
	for path, file := range files { // any order: sorted below
		if filepath.Base(path) != "envoy" {
			programs = append(programs, file)
		}
	}
	slices.Sort(programs)
	all, err := parts.Of(ctx, programs...)
	if err != nil {
		return err
	}
	if envoy, ok := files["/usr/local/bin/envoy"]; ok {
		added, err := parts.Envoy(envoy)
		if err != nil {
			return err
		}
		libc, err := parts.LibC(strings.ReplaceAll(o.libc, "{arch}", arch), arch)
		if err != nil {
			return err
		}
		all = append(append(all, added...), libc...)
	}
	if err := parts.Licences(dir, all); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		return err
	}
	return errors.Join(parts.Materials(f, name, stamp.Version, stamp.Time, all), f.Close())
}

// publish writes one image for all architectures, and its bills of materials to the same folder.
func (o options) publish(name, docs string, images []image.Image) error {
	folder, layout := strings.CutPrefix(o.out, "oci:")
	if layout {
		digest, err := image.WriteLayout(filepath.Join(folder, name), images...)
		if err != nil {
			return err
		}
		fmt.Printf("%s  %s@%s\n", filepath.Join(folder, name), images[0].Name, digest)
		return materials(folder, name, docs, images)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	file := filepath.Join(folder, name+".tar")
	if err := images[0].WriteFile(file); err != nil {
		return err
	}
	fmt.Printf("%s  %s\n", file, images[0].Name)
	return materials(folder, name, docs, images)
}

// materials copies the bill of materials of each architecture to NAME_ARCH.cdx.json in folder.
func materials(folder, name, docs string, images []image.Image) error {
	for _, img := range images {
		text, err := os.ReadFile(filepath.Join(docs, img.Arch, name, "sbom.cdx.json"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name+"_"+img.Arch+".cdx.json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
