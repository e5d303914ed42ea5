// Command conformance runs the Gateway API's conformance suite on the test cluster, with Outrider
// installed as an operator installs it, and saves the suite's report and a table of its tests in
// docs/conformance. "make conformance" runs it in the root of the module.
//
//	go run ./test/e2e/conformance [-run REGEX] [-kube v1.34] [-runtime containerd]
//
// With -run only the tests with matching names run, and nothing is saved. The suite and the echo
// server that it calls are built from the separate module test/conformance.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"outrider.dev/build/commands"
	"outrider.dev/build/image"
	"outrider.dev/test/e2e/world"
)

const (
	// module is the folder of the suite's module.
	module = "test/conformance"

	// channel is the release channel of the Gateway API whose CRDs are installed: the generally
	// available features.
	channel = "standard"

	// kept is the folder with the report and the page that contains the table.
	kept = "docs/conformance"

	// client is a program in the echo server's image, which the suite runs in a pod for each request.
	client = "client"
)

func main() {
	only := flag.String("run", "", "regular expression of the suite's tests to run (default all)")
	kube := flag.String("kube", "", "version of Kubernetes (default the test cluster's)")
	runtime := flag.String("runtime", "", "container runtime (default the test cluster's)")
	flag.Parse()
	status, err := run(context.Background(), *only, *kube, *runtime)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance: error:", err)
		status = 1
	}
	os.Exit(status)
}

// run is called twice. Outside a cluster it builds the suite, brings a cluster up and starts this program in
// it. Inside the cluster it installs Outrider and runs the suite. It returns the exit status.
func run(ctx context.Context, only, kube, runtime string) (int, error) {
	root, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	api, err := moduleOf(ctx, root, "sigs.k8s.io/gateway-api")
	if err != nil {
		return 1, err
	}
	s := &suite{root: root, bin: filepath.Join(root, "bin", "conformance"), only: only, api: api}
	if world.Inside() {
		return s.run(ctx)
	}
	fmt.Fprintf(os.Stderr, "the conformance suite of the Gateway API %s, channel %s\n", api.version, channel)
	if err := s.build(ctx); err != nil {
		return 1, err
	}
	return world.Enter(world.Options{Root: root, Version: kube, Runtime: runtime, Name: "conformance", Images: []string{s.tarball()}, Progress: os.Stderr}), nil
}

// A suite is the Gateway API's conformance suite, with its programs in the directory bin.
type suite struct {
	root, bin, only string
	api             pinned
}

// pinned is the version and directory of a module that test/conformance requires.
type pinned struct{ version, dir string }

func moduleOf(ctx context.Context, root, path string) (pinned, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", path)
	cmd.Dir, cmd.Stderr = filepath.Join(root, module), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return pinned{}, fmt.Errorf("finding module %s: %w", path, err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if dir == "" {
		return pinned{}, fmt.Errorf("module %s %s is not in the module cache: run go mod download in %s", path, version, module)
	}
	return pinned{version, dir}, nil
}

func (s *suite) tests() string   { return filepath.Join(s.bin, "conformance.test") }
func (s *suite) tarball() string { return filepath.Join(s.bin, "echo.tar") }
func (s *suite) report() string  { return filepath.Join(s.root, kept, s.api.version+"-report.yaml") }

// build builds the suite and the image of its echo server, under the image name in the suite's own manifests.
func (s *suite) build(ctx context.Context) error {
	if err := s.compile(ctx, "test", "-c", "-o", s.tests(), "."); err != nil {
		return err
	}
	const echo = "istio.io/istio/pkg/test/echo/cmd/"
	for _, program := range []string{"server", client} {
		if err := s.compile(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(s.bin, program), echo+program); err != nil {
			return err
		}
	}
	istio, err := moduleOf(ctx, s.root, "istio.io/istio")
	if err != nil {
		return err
	}
	name, err := s.echoImage(ctx)
	if err != nil {
		return err
	}
	certificates := filepath.Join(istio.dir, "tests", "testdata", "certs", "dns")
	return image.Image{
		Name: name, User: "1338", Entrypoint: []string{"/usr/local/bin/server"},
		Files: map[string]string{
			"/usr/local/bin/server": filepath.Join(s.bin, "server"), "/usr/local/bin/client": filepath.Join(s.bin, client),
			"/cert.crt": filepath.Join(certificates, "cert-chain.pem"), "/cert.key": filepath.Join(certificates, "key.pem"),
		},
	}.WriteFile(s.tarball())
}

func (s *suite) compile(ctx context.Context, args ...string) error {
	fmt.Fprintln(os.Stderr, "go", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(s.root, module), append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// echoImage returns the image of the pods in the suite's base manifest.
func (s *suite) echoImage(ctx context.Context) (string, error) {
	m, err := moduleOf(ctx, s.root, "sigs.k8s.io/gateway-api/conformance")
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, "mesh", "manifests.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: no image in it", path)
}

// run installs the suite's requirements, runs the suite, and returns its exit status.
func (s *suite) run(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := world.Open(ctx, s.root)
	if err != nil {
		return 1, err
	}
	crds := filepath.Join(s.api.dir, "config", "crd", channel)
	if _, err := w.Kubectl(ctx, "", "apply", "--server-side", "--filename="+crds); err != nil {
		return 1, err
	}
	if _, err := w.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=1m", "--all", "customresourcedefinitions"); err != nil {
		return 1, err
	}
	if err := w.Install(ctx, 1, 0); err != nil {
		return 1, err
	}
	table := filepath.Join(s.bin, "table.md")
	args := []string{"-test.v", "-test.timeout=60m", "-test.run=TestMesh/" + s.only, "-conformance-options-file=options.yaml",
		"-version=" + commands.StampOf(ctx).Version}
	if s.only == "" {
		args = append(args, "-report-output="+s.report(), "-table="+table)
	}
	log, err := os.Create(filepath.Join(s.bin, "suite.log"))
	if err != nil {
		return 1, err
	}
	defer log.Close()
	fmt.Fprintln(os.Stderr, "the suite's whole log:", log.Name())
	cmd := exec.CommandContext(ctx, s.tests(), args...)
	cmd.Dir = filepath.Join(s.root, module)
	cmd.Stdout = io.MultiWriter(log, &progress{out: os.Stdout})
	cmd.Stderr = cmd.Stdout
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	if s.only == "" {
		err = s.keep(table)
	}
	return cmd.ProcessState.ExitCode(), err
}

// keep makes the report readable for all users, and writes the table into the page in the report's
// folder, between the line "<!-- by make conformance -->" and the next empty line.
func (s *suite) keep(table string) error {
	if err := os.Chmod(s.report(), 0o644); err != nil {
		return err
	}
	rows, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	page := filepath.Join(s.root, kept, "README.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	const begin = "<!-- by make conformance -->\n"
	before, after, ok := strings.Cut(string(text), begin)
	if !ok {
		return fmt.Errorf("%s: no line %q, after which the table goes", page, strings.TrimSpace(begin))
	}
	_, rest, _ := strings.Cut(after, "\n\n")
	return os.WriteFile(page, []byte(before+begin+string(rows)+"\n"+rest), 0o644)
}

// progress filters the suite's log: it prints the result of each mesh test, and the text after the
// report except the skipped gateway tests.
type progress struct {
	out    io.Writer
	rest   []byte
	closes bool
}

func (p *progress) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(text), nil
		}
		p.rest = rest
		p.closes = p.closes || bytes.Contains(line, []byte("Conformance report:"))
		result, is := bytes.CutPrefix(line, []byte("conformance: "))
		if !is && (!p.closes || bytes.Contains(line, []byte("--- SKIP"))) {
			continue
		}
		if _, err := fmt.Fprintf(p.out, "%s\n", result); err != nil {
			return 0, err
		}
	}
}
