package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Build builds the programs for a cluster with these options, as far as they are missing or older than
// their source. [Up] calls it too.
func Build(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if err := checkNeeds(); err != nil {
		return err
	}
	return build(ctx, o, newProgress(o.Progress))
}

func build(ctx context.Context, o Options, progress *progress) error {
	root, err := repository()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(o.Cache, "tools"), 0o755); err != nil {
		return err
	}
	// If several processes call Build at the same time, one builds and the others wait.
	unlock, err := lock(ctx, o.Cache)
	if err != nil {
		return err
	}
	defer unlock()

	source := filepath.Join(root, "test", "cluster")
	tools := filepath.Join(o.Cache, "tools")
	kube, err := kubeProgram(filepath.Join(source, "kube"), o.Version, filepath.Join(o.Cache, o.Version, "kube"))
	if err != nil {
		return err
	}
	dns := program{name: "CoreDNS", dir: filepath.Join(source, "coredns"), modfile: "go.mod", output: filepath.Join(tools, "coredns")}
	runtime, err := runtimePrograms(source, o)
	if err != nil {
		return err
	}
	for _, p := range append(runtime, kube, dns) {
		if err := p.buildOnce(ctx, progress); err != nil {
			return err
		}
	}
	if err := linkKube(kube.output); err != nil {
		return err
	}
	// The sources of these two are in this module and change often, so the go command decides whether to rebuild them.
	for _, name := range []string{"node", "pause"} {
		p := program{name: name, dir: filepath.Join(source, name), output: filepath.Join(tools, name)}
		if err := p.build(ctx); err != nil {
			return err
		}
	}
	if err := writeImages(ctx, o.Cache); err != nil {
		return err
	}
	progress.step("programs and images at hand")
	return nil
}

// A program is a main package that is built into the cache.
type program struct {
	name    string
	dir     string // directory of the source
	modfile string // relative to dir; default: the go.mod that governs dir
	pkg     string // import path, in a module that the modfile requires; default: the package in dir
	tags    string
	ldflags string
	output  string
}

// links are the names of the programs in the Kubernetes binary. Each becomes a link to it.
var links = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"}

// requiredVersion returns the version of a module that a go.mod requires.
func requiredVersion(modfile, module string) (string, error) {
	text, err := os.ReadFile(modfile)
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`(?m)^(?:require |\t)` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("%s does not require %s", modfile, module)
	}
	return string(match[1]), nil
}

func kubeProgram(dir, version, output string) (program, error) {
	modfile := filepath.Join(version, "go.mod")
	release, err := requiredVersion(filepath.Join(dir, modfile), "k8s.io/kubernetes")
	if err != nil {
		return program{}, err
	}
	minor := strings.Split(release, ".")[1]
	// Without these flags the programs report v0.0.0, and clients that compare versions do not
	// accept the kubelet and the API server.
	const at = "-X k8s.io/component-base/version."
	ldflags := strings.Join([]string{
		at + "gitVersion=" + release, at + "gitMajor=1", at + "gitMinor=" + minor,
		at + "gitCommit=" + release, at + "gitTreeState=clean", at + "buildDate=1970-01-01T00:00:00Z",
	}, " ")
	return program{name: "Kubernetes " + release, dir: dir, modfile: modfile, ldflags: ldflags, output: output}, nil
}

func linkKube(binary string) error {
	for _, name := range links {
		if err := link(filepath.Base(binary), filepath.Join(filepath.Dir(binary), name)); err != nil {
			return err
		}
	}
	return nil
}

// link makes a symbolic link to target at the given path. It replaces an existing file there atomically, so that a
// running cluster keeps the file that it has opened.
func link(target, at string) error {
	if is, err := os.Readlink(at); err == nil && is == target {
		return nil
	}
	temp := at + ".new"
	os.Remove(temp)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, temp)); err != nil {
		return err
	}
	return os.Rename(temp, at)
}

// buildOnce makes the output a link to the build of p that all checkouts of the user share (see shared), and builds p
// first if there is no such build. It does not run the go command for an existing build: in modules of this size even
// the check that nothing has changed takes seconds.
func (p program) buildOnce(ctx context.Context, progress *progress) error {
	inputs, err := p.inputs()
	if err != nil {
		return err
	}
	shared, found, err := p.shared(inputs)
	if err != nil {
		return err
	}
	if !found { // another checkout may be building it
		if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
			return err
		}
		unlock, err := lock(ctx, filepath.Dir(shared))
		if err != nil {
			return err
		}
		defer unlock()
		if shared, found, err = p.shared(inputs); err != nil {
			return err
		}
	}
	if !found {
		progress.step("building %s; the first time takes some minutes", p.name)
		build := p
		build.output = shared
		if err := build.build(ctx); err != nil {
			return err
		}
		progress.step("built %s", p.name)
		prune(filepath.Dir(shared))
	}
	os.Chtimes(shared, time.Time{}, time.Now()) // marks the build as the last used, so that it is pruned last
	return link(shared, p.output)
}

// inputs returns a digest of everything that the output depends on, except the Go release.
func (p program) inputs() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, p.args())
	modfile := filepath.Join(p.dir, p.modfile)
	files := []string{filepath.Join(p.dir, "main.go"), modfile, strings.TrimSuffix(modfile, ".mod") + ".sum"}
	if p.pkg != "" {
		fmt.Fprintln(sum, p.pkg)
		files = files[1:]
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%d\n%s", len(text), text)
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}

func (p program) args() []string {
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + p.ldflags)}
	if p.modfile != "" {
		args = append(args, "-modfile="+p.modfile)
	}
	if p.tags != "" {
		args = append(args, "-tags="+p.tags)
	}
	return args
}

// compileFaster omits debugging information, which saves a sixth of the compile time; the linker
// would strip it anyway. The flag is not among the inputs, because the output is the same.
const compileFaster = "-gcflags=all=-dwarf=false"

// build replaces the output atomically: a running cluster keeps the file that it opened.
func (p program) build(ctx context.Context) error {
	temp := filepath.Join(filepath.Dir(p.output), ".new-"+filepath.Base(p.output))
	if err := os.MkdirAll(filepath.Dir(temp), 0o755); err != nil {
		return err
	}
	defer os.Remove(temp)
	cmd := exec.CommandContext(ctx, "go", append(p.args(), compileFaster, "-o", temp, cmp.Or(p.pkg, "."))...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // at this signal the go command ends its compilers
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("building %s: %w\n%s", p.name, cmp.Or(context.Cause(ctx), err), bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
	}
	return os.Rename(temp, p.output)
}

// repository returns the root of this module, relative to the current directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), "module outrider.dev") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the repository of outrider.dev, where the sources of a cluster are")
		}
	}
}
