package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"outrider.dev/build/image"
)

// pauseImage is the image of the container that holds each pod's namespaces.
const pauseImage = "test.outrider.dev/pause:1"

func pauseTarball(cache string) string { return filepath.Join(cache, "tools", "pause.tar") }
func baseTarball(cache string) string  { return filepath.Join(cache, "tools", "base.tar") }

func writeImages(ctx context.Context, cache string) error {
	pause := image.Image{
		Name:       pauseImage,
		Files:      map[string]string{"/pause": filepath.Join(cache, "tools", "pause")},
		Entrypoint: []string{"/pause"},
	}
	if err := pause.WriteFile(pauseTarball(cache)); err != nil {
		return err
	}
	base, err := baseImage(ctx)
	if err != nil {
		return err
	}
	return base.WriteFile(baseTarball(cache))
}

// baseImage contains the basic programs that tests need in a container.
func baseImage(ctx context.Context) (image.Image, error) {
	const busybox, iptables = "/bin/busybox", "/usr/sbin/xtables-nft-multi"
	img := image.Image{
		Name:  BaseImage,
		Files: map[string]string{busybox: find("busybox"), iptables: find("xtables-nft-multi")},
		Links: make(map[string]string),
	}
	names, err := exec.CommandContext(ctx, img.Files[busybox], "--list").Output()
	if err != nil {
		return img, fmt.Errorf("listing the programs of busybox: %w", err)
	}
	for _, name := range strings.Fields(string(names)) {
		if link := "/bin/" + name; link != busybox {
			img.Links[link] = busybox
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, action := range []string{"", "-save", "-restore"} {
			img.Links["/usr/sbin/"+family+action] = iptables
		}
	}
	// iptables loads its matches and targets from this directory when a rule names them.
	extensions, err := filepath.Glob("/usr/lib/*/xtables")
	if err != nil || len(extensions) == 0 {
		return img, fmt.Errorf("no extensions of iptables in /usr/lib: %v", err)
	}
	for _, dir := range extensions {
		img.Files[dir] = dir
	}
	return img, nil
}
