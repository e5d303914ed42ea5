// Command release writes what is published of a version beside the images: an archive of the
// command outrider for each system, with completions, licences and a bill of materials, and
// checksums.txt. The same commit gives the same bytes. "make release" calls it.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/build/parts"
)

// targets are the systems for which the command is published: those of the people who look after
// a cluster. What needs Linux says so on the others.
const targets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process. It returns the exit status: 0 written, 1 not, 2 usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.SetOutput(stderr)
	out := fs.String("o", "bin/release", "`folder` for the archives; made anew")
	list := fs.String("for", targets, "`systems`, as GOOS/GOARCH")
	version := fs.String("version", "", "`version` in the archives' names; default: of the checkout, without its v")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "release: error: unexpected argument %q\n", fs.Arg(0))
		return 2
	}
	systems := strings.Split(*list, ",")
	for _, s := range systems {
		if system, arch, ok := strings.Cut(s, "/"); !ok || system == "" || arch == "" {
			fmt.Fprintf(stderr, "release: error: -for: %q must be GOOS/GOARCH\n", s)
			return 2
		}
	}
	if strings.ContainsAny(*version, `/\ `) {
		fmt.Fprintf(stderr, "release: error: -version: %q must be part of a file's name\n", *version)
		return 2
	}
	r := releaser{stamp: commands.StampOf(ctx), out: *out}
	if r.version = *version; r.version == "" {
		r.version = strings.TrimPrefix(r.stamp.Version, "v")
	}
	if err := r.write(ctx, systems); err != nil {
		fmt.Fprintf(stderr, "release: error: %v\n", err)
		return 1
	}
	sums, err := os.ReadFile(filepath.Join(*out, "checksums.txt"))
	fmt.Fprintf(stdout, "%s", sums)
	if err != nil {
		return 1
	}
	return 0
}

type releaser struct {
	stamp        commands.Stamp
	version, out string
}

func (r releaser) write(ctx context.Context, systems []string) error {
	work, err := os.MkdirTemp("", "release.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	completions := filepath.Join(work, "completions")
	if err := complete(ctx, work, completions); err != nil {
		return err
	}
	var sums strings.Builder
	for _, target := range systems {
		system, arch, _ := strings.Cut(target, "/")
		name := fmt.Sprintf("outrider_%s_%s_%s", r.version, system, arch)
		dir := filepath.Join(work, name)
		if err := r.fill(ctx, dir, completions, system, arch); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		bill, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, name+".cdx.json"), bill, 0o644); err != nil {
			return err
		}
		packed := name + ".tar.gz"
		if system == "windows" {
			packed = name + ".zip"
		}
		if err := archive(filepath.Join(r.out, packed), dir, r.stamp.Time); err != nil {
			return err
		}
		for _, file := range []string{name + ".cdx.json", packed} {
			content, err := os.ReadFile(filepath.Join(r.out, file))
			if err != nil {
				return err
			}
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), file)
		}
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(sums.String()), 0o644)
}

// shells have completions; the names are those under which each looks for them.
var shells = map[string]string{"bash": "outrider", "zsh": "_outrider", "fish": "outrider.fish", "powershell": "outrider.ps1"}

// complete writes the completions, which this machine's own build prints.
func complete(ctx context.Context, work, dir string) error {
	if err := commands.Build(ctx, work, commands.CLI); err != nil {
		return err
	}
	for shell, file := range shells { // any order: each is a file of its own
		text, err := exec.CommandContext(ctx, filepath.Join(work, commands.CLI), "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion for %s: %w", shell, err)
		}
		to := filepath.Join(dir, shell, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(work, commands.CLI))
}

// fill makes the folder that becomes an archive.
func (r releaser) fill(ctx context.Context, dir, completions, system, arch string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := commands.BuildFor(ctx, commands.Target{System: system, Arch: arch}, dir, commands.CLI); err != nil {
		return err
	}
	all, err := parts.Of(ctx, filepath.Join(dir, commands.File(system, commands.CLI)))
	if err != nil {
		return err
	}
	if err := parts.Licences(filepath.Join(dir, "licences"), all); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "completions"), os.DirFS(completions)); err != nil {
		return err
	}
	text, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), text, 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		return err
	}
	return errors.Join(parts.Materials(f, commands.CLI, r.stamp.Version, r.stamp.Time, all), f.Close())
}

// archive writes the files of a folder to a tar.gz or a zip, by the name of it: in the order of their
// names, all with one time and without owners.
func archive(path, from string, at time.Time) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if strings.HasSuffix(path, ".zip") {
		z := zip.NewWriter(f)
		err := each(from, func(name string, mode fs.FileMode, content []byte) error {
			header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
			header.SetMode(mode)
			w, err := z.CreateHeader(header)
			if err != nil {
				return err
			}
			_, err = w.Write(content)
			return err
		})
		return errors.Join(err, z.Close())
	}
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	err = each(from, func(name string, mode fs.FileMode, content []byte) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: at}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	})
	return errors.Join(err, t.Close(), z.Close())
}

// each calls add for the files of a folder. The command at its root can be run.
func each(from string, add func(name string, mode fs.FileMode, content []byte) error) error {
	return filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.TrimSuffix(name, ".exe") == commands.CLI {
			mode = 0o755
		}
		return add(filepath.ToSlash(name), mode, content)
	})
}
