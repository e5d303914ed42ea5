// Package captures captures the connections of pods from outside, in their network namespaces, and
// remembers whose capture is proven.
//
// The flags come from a pod's annotation, which whoever creates the pod may set: they are parsed
// here, and only the settings of a capture's intent reach the agent.
package captures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
)

// ownNamespace is the network namespace of this process, which shares the node's.
const ownNamespace = "/proc/self/ns/net"

// environment of the agent: its iptables backend looks for programs in PATH, and its collector keeps
// to that much memory.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOMEMLIMIT=12MiB"}

// Limits: agents that run at once, while others wait; and flags of one, which may come again.
const (
	atOnce   = 4
	maxFlags = 128
)

// Captures runs the agent, and has the sandboxes whose capture it has proven.
type Captures struct {
	agent string
	dir   string // with the DNS servers of sandboxes, which the next process needs too
	turns chan struct{}
	procs string // file of the agents' cgroup that takes their ids; empty: they have none

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

type sandbox struct {
	mu     sync.Mutex // held while the agent runs
	proven string
}

// New returns captures by the agent at a path, which keep DNS servers in a directory.
func New(agent, dir string) *Captures {
	return &Captures{agent: agent, dir: dir, turns: make(chan struct{}, atOnce), sandboxes: map[string]*sandbox{}}
}

func (c *Captures) sandbox(id string) *sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sandboxes[id]
	if s == nil {
		s = &sandbox{}
		c.sandboxes[id] = s
	}
	return s
}

// file is where a sandbox's DNS servers are; false if the id is no name of a file.
func (c *Captures) file(id string) (string, bool) {
	return filepath.Join(c.dir, id), id != "" && id[0] != '.' && !strings.ContainsRune(id, '/')
}

// Servers sets a sandbox's DNS servers, which a capture of DNS has to know.
func (c *Captures) Servers(id string, servers []netip.Addr) error {
	name, ok := c.file(id)
	if !ok || len(servers) == 0 {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(addresses(servers)), 0o600)
}

// servers returns the DNS servers that were known, also to a former process; empty: none were.
func (c *Captures) servers(id string) string {
	name, ok := c.file(id)
	if !ok {
		return ""
	}
	text, _ := os.ReadFile(name)
	return string(text)
}

// Forget drops what is known of a sandbox. Its rules go with its namespace.
func (c *Captures) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sandboxes, id)
	if name, ok := c.file(id); ok {
		_ = os.Remove(name)
	}
}

// starting is how long a sandbox may take from its network until the runtime lists it.
const starting = 10 * time.Minute

// Keep forgets all sandboxes but these, and those that may be starting.
func (c *Captures) Keep(ids []string) {
	known := map[string]bool{}
	entries, _ := os.ReadDir(c.dir) // none yet
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > starting {
			known[e.Name()] = true
		}
	}
	c.mu.Lock()
	for id := range c.sandboxes { // any order: each is dropped or not
		if !slices.Contains(ids, id) {
			delete(c.sandboxes, id) // what is starting is proven again
		}
	}
	c.mu.Unlock()
	for id := range known { // any order: each is dropped or not
		if !slices.Contains(ids, id) {
			c.Forget(id)
		}
	}
}

// Ensure captures the connections in a namespace and proves it, unless this process has proven the
// same before. Rules that are there already, and as they should be, are proven and not written.
func (c *Captures) Ensure(ctx context.Context, id, namespace string, flags []string) error {
	arguments, dns, err := Parse(flags)
	if err != nil {
		return err
	}
	if err := apart(namespace); err != nil {
		return err
	}
	s := c.sandbox(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.Join(append([]string{namespace}, arguments...), "\x00")
	if s.proven == key {
		return nil
	}
	s.proven = ""
	switch servers := c.servers(id); {
	case !dns:
	case servers != "":
		arguments = append(arguments, "--nameservers="+servers)
	default: // the pod's own resolv.conf is not at hand; its queries are among those to all servers
		arguments = append(arguments, "--capture-all-dns=true")
	}
	if err := c.run(ctx, append([]string{"capture", "--network-namespace=" + namespace, "--backend=auto", "--termination-log="}, arguments...)); err != nil {
		return err
	}
	s.proven = key
	return nil
}

func addresses(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// apart reports whether a namespace is another one than the node's.
func apart(namespace string) error {
	var pod, node unix.Stat_t
	if err := unix.Stat(namespace, &pod); err != nil {
		return fmt.Errorf("network namespace %q: %w", namespace, err)
	}
	if err := unix.Stat(ownNamespace, &node); err != nil {
		return fmt.Errorf("%s: %w", ownNamespace, err)
	}
	if pod.Dev == node.Dev && pod.Ino == node.Ino {
		return fmt.Errorf("network namespace %q is the node's own, which is never captured", namespace)
	}
	return nil
}

// run runs the agent in its turn, with no variable of this process, and returns its last words as the error.
func (c *Captures) run(ctx context.Context, arguments []string) error {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return fmt.Errorf("capturing, in its turn after others: %w", context.Cause(ctx))
	}
	out := &tail{}
	cmd := exec.CommandContext(ctx, c.agent, arguments...)
	cmd.Env, cmd.Dir = environment, "/"
	cmd.Stdout, cmd.Stderr = nil, out
	err := cmd.Start()
	if err == nil {
		if c.procs != "" {
			_ = os.WriteFile(c.procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0) // it may have ended
		}
		err = cmd.Wait()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("capturing: %w", context.Cause(ctx))
	}
	if text := out.text(); text != "" {
		return fmt.Errorf("capturing: %w: %s", err, text)
	}
	return fmt.Errorf("capturing: %w", err)
}

// tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

const maxTail = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p[max(0, len(p)-maxTail):])
	t.Next(max(0, t.Len()-maxTail))
	return len(p), nil
}

func (t *tail) text() string { return strings.Join(strings.Fields(t.String()), " ") }

// Parse reads the flags of an annotation, and returns them as the agent gets them, and whether they
// capture DNS by the pod's own servers. Only settings of a capture's intent are flags here.
func Parse(flags []string) (arguments []string, dns bool, err error) {
	in := capture.Defaults()
	fs := pflag.NewFlagSet("capture", pflag.ContinueOnError)
	fs.SetOutput(new(bytes.Buffer))
	fs.Usage = func() {}
	for _, f := range capture.Flags(&in, nil, nil) {
		fs.VarP(given{f, &arguments}, f.Name, f.Short, f.Usage)
		if f.IsBoolFlag() {
			fs.Lookup(f.Name).NoOptDefVal = "true"
		}
	}
	fail := func(err error) ([]string, bool, error) {
		return nil, false, fmt.Errorf("flags of capture: %w", err)
	}
	if len(flags) > maxFlags {
		return fail(fmt.Errorf("there are %d; at most %d are possible", len(flags), maxFlags))
	}
	var bad *pflag.InvalidValueError // its text has the value in full
	if err := fs.Parse(flags); errors.As(err, &bad) {
		return fail(errors.Unwrap(bad))
	} else if errors.Is(err, pflag.ErrHelp) {
		return fail(errors.New("they ask for help; want settings of what is captured"))
	} else if err != nil {
		return fail(err)
	}
	if fs.NArg() > 0 || fs.ArgsLenAtDash() >= 0 {
		return fail(errors.New("there is an argument that is not a flag"))
	}
	if err := in.Check(); err != nil {
		return fail(err)
	}
	return arguments, in.DNS == capture.DNSServers, nil
}

// given is a flag that adds itself to the arguments, with the value that was given.
type given struct {
	*capture.Flag
	arguments *[]string
}

func (g given) Set(value string) error {
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("--%s=%q: has a zero byte", g.Name, value)
	}
	if err := g.Flag.Set(value); err != nil {
		return err
	}
	*g.arguments = append(*g.arguments, "--"+g.Name+"="+value)
	return nil
}

// Ready reports whether the agent is there.
func (c *Captures) Ready() error {
	_, err := os.Stat(c.agent)
	return err
}
