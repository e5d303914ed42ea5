//go:build linux

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/core/capture"
)

// A variant is one of the two implementations of iptables, whose rules are separate.
type variant string

const (
	nft    variant = "nft"
	legacy variant = "legacy"
)

// variants in the order of preference:
var variants = []variant{nft, legacy}

// errNoTool means that the commands of a variant are not installed.
var errNoTool = errors.New("not found in PATH; install iptables")

// program returns the command for a family and an action, "save" or "restore". If no command has the variant's
// name, it returns the command without a variant in its name, if that command belongs to the variant.
func program(ctx context.Context, v variant, family capture.Families, action string) (string, error) {
	base := "iptables"
	if family == capture.IPv6 {
		base = "ip6tables"
	}
	named := fmt.Sprintf("%s-%s-%s", base, v, action)
	if path, err := exec.LookPath(named); err == nil {
		return path, nil
	}
	plain, err := exec.LookPath(base + "-" + action)
	if err != nil {
		return "", fmt.Errorf("%s, %s-%s: %w", named, base, action, errNoTool)
	}
	version, err := run(ctx, "", plain, "--version")
	if err != nil {
		return "", err
	}
	// Before iptables 1.8, legacy was the only variant, and the version does not name it.
	if strings.Contains(version, "(nf_tables)") != (v == nft) {
		return "", fmt.Errorf("%s: %w; %s is of the other variant", named, errNoTool, plain)
	}
	return plain, nil
}

type openFileKey struct{}

// WithOpenFile returns a context under which every program that is started keeps f open. If f is
// locked, the lock lasts until the last of these programs has exited, even if this process is
// killed first.
func WithOpenFile(ctx context.Context, f *os.File) context.Context {
	return context.WithValue(ctx, openFileKey{}, f)
}

func run(ctx context.Context, stdin, path string, args ...string) (stdout string, err error) {
	return start(ctx, stdin, path, args...)()
}

// start starts a command from the caller's thread, so that it runs in that thread's network
// namespace. wait returns the command's output.
func start(ctx context.Context, stdin, path string, args ...string) (wait func() (stdout string, err error)) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if f, ok := ctx.Value(openFileKey{}).(*os.File); ok {
		cmd.ExtraFiles = []*os.File{f}
	}
	err := cmd.Start()
	return func() (string, error) {
		if err == nil {
			err = cmd.Wait()
		}
		if err == nil {
			return out.String(), nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", &commandError{strings.Join(cmd.Args, " "), strings.TrimSpace(errOut.String()), err}
	}
}

// commandError reports a command that failed.
type commandError struct {
	command string
	stderr  string
	err     error
}

func (e *commandError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("running %s: %v", e.command, e.err)
	}
	return fmt.Sprintf("running %s: %v: %s", e.command, e.err, strings.Join(strings.Fields(e.stderr), " "))
}

func (e *commandError) Unwrap() error { return e.err }

// restore writes rules. It does not change chains that the text does not name.
func restore(ctx context.Context, v variant, family capture.Families, text string) error {
	path, err := program(ctx, v, family, "restore")
	if err != nil {
		return err
	}
	args := []string{"--noflush"}
	if v == legacy { // nf_tables has transactions and needs no lock
		args = append(args, "--wait")
	}
	_, err = run(ctx, text, path, args...)
	var c *commandError
	if errors.As(err, &c) {
		if line := lineOf(c.stderr, text); line != "" {
			return fmt.Errorf("%w; the line is %q", err, line)
		}
	}
	return err
}

var lineNumber = regexp.MustCompile(`line:? ([0-9]+)`)

// lineOf returns the line of text that iptables-restore complains about.
func lineOf(stderr, text string) string {
	m := lineNumber.FindStringSubmatch(stderr)
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[1])
	lines := strings.Split(text, "\n")
	if err != nil || n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// legacyNames are the kernel's files that list the existing legacy tables. The path contains thread-self, because
// a thread may be in another network namespace than its process.
var legacyNames = map[capture.Families]string{
	capture.IPv4: "/proc/thread-self/net/ip_tables_names",
	capture.IPv6: "/proc/thread-self/net/ip6_tables_names",
}

// unlistable matches the line that iptables-nft-save prints, with status 0, in place of a table
// with nft rules that iptables cannot express.
var unlistable = regexp.MustCompile("(?m)^# Table `(.*)' is incompatible")

// save reads our rules in one family of one variant. It lists all existing tables, which takes no
// longer than listing one.
func save(ctx context.Context, v variant, family capture.Families) (owned, error) {
	return startSave(ctx, v, family)()
}

// startSave starts to read. It changes nothing: without a table's name, the legacy command creates
// no table.
func startSave(ctx context.Context, v variant, family capture.Families) (wait func() (owned, error)) {
	path, err := program(ctx, v, family, "save")
	if err != nil {
		return func() (owned, error) { return nil, err }
	}
	output := start(ctx, "", path, "-c")
	return func() (owned, error) {
		text, err := output()
		if err != nil {
			return nil, err
		}
		if m := unlistable.FindStringSubmatch(text); m != nil && slices.Contains(tables, capture.Table(m[1])) {
			return nil, fmt.Errorf("running %s: table %s has rules that only nft can list, so that ours are not listed either; use the nftables backend", path, m[1])
		}
		o, err := scan(text)
		if err != nil {
			return nil, fmt.Errorf("reading the output of %s: %w", path, err)
		}
		return o, nil
	}
}
