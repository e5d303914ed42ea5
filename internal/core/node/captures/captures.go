// Package captures captures the connections of pods from outside, in their network namespaces, records
// which captures are proven, and repairs captures that were changed later, until their sandboxes end.
//
// The flags come from a pod's annotation, which any creator of a pod can set: they are parsed here, and
// only settings of a capture's intent are passed to the agent.
package captures

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/node/watch"
)

// ownNamespace is the network namespace of this process, which is the node's.
const ownNamespace = "/proc/self/ns/net"

// environment contains the variables of the agent: its iptables backend looks for programs in PATH, and its
// garbage collector observes the memory limit.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOMEMLIMIT=12MiB"}

// Limits of the number of agents that run at the same time, while others wait, and of the flags of one agent,
// including repeated flags.
const (
	atOnce   = 4
	maxFlags = 128
)

// Captures runs the agent, and records the sandboxes whose capture it has proven.
type Captures struct {
	agent string
	dir   string // stores the DNS servers of sandboxes, so that the next process of the daemon has them
	turns chan struct{}
	procs string // file of the agents' cgroup to which process IDs are written; empty: there is no cgroup

	watcher *watch.Watcher
	wake    chan struct{} // contains a value after a sandbox became due for a repair
	repairs atomic.Uint64

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

type sandbox struct {
	id    string
	began time.Time
	repair

	busy   chan struct{} // contains a value while the agent runs, and guards the fields below
	proven string
	description
}

// New returns captures that run the agent at a path, and store DNS servers in a directory.
func New(agent, dir string) *Captures {
	return &Captures{agent: agent, dir: dir, turns: make(chan struct{}, atOnce), sandboxes: map[string]*sandbox{},
		watcher: watch.New(), wake: make(chan struct{}, 1)}
}

func (c *Captures) sandbox(id string) *sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sandboxes[id]
	if s == nil {
		s = &sandbox{id: id, began: time.Now(), busy: make(chan struct{}, 1)}
		c.sandboxes[id] = s
	}
	return s
}

// lock waits until no other agent runs in the sandbox. A runtime that asks does not wait for ever.
func (s *sandbox) lock(ctx context.Context) error {
	select {
	case s.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("capturing, after another agent in the same pod: %w", context.Cause(ctx))
	}
}

func (s *sandbox) tryLock() bool {
	select {
	case s.busy <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *sandbox) unlock() { <-s.busy }

// file returns the file for a sandbox's DNS servers; false if the id is not a valid file name.
func (c *Captures) file(id string) (string, bool) {
	return filepath.Join(c.dir, id), id != "" && id[0] != '.' && !strings.ContainsRune(id, '/')
}

// Servers stores a sandbox's DNS servers, which a capture of DNS needs.
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

// servers returns the stored DNS servers, even if a previous process stored them; empty: none.
func (c *Captures) servers(id string) string {
	name, ok := c.file(id)
	if !ok {
		return ""
	}
	text, _ := os.ReadFile(name)
	return string(text)
}

// Forget removes the data about a sandbox, and ends its watch. Its rules disappear with its namespace.
func (c *Captures) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
	if name, ok := c.file(id); ok {
		_ = os.Remove(name)
	}
}

// drop ends the watch of a sandbox. A capture of it that runs at the moment ends, and is not watched.
func (c *Captures) drop(id string) {
	delete(c.sandboxes, id)
	c.watcher.Remove(id)
}

// starting is the time for which a sandbox may be missing from the runtime's list after its network was set up.
const starting = 10 * time.Minute

// Keep removes the data about all sandboxes except those with these IDs and those that may be starting.
func (c *Captures) Keep(ids []string) {
	known := map[string]bool{}
	entries, _ := os.ReadDir(c.dir) // an error means that there are none yet
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > starting {
			known[e.Name()] = true
		}
	}
	c.mu.Lock()
	for id, s := range c.sandboxes { // any order: each is handled by itself
		if !slices.Contains(ids, id) && time.Since(s.began) > starting {
			c.drop(id)
		}
	}
	c.mu.Unlock()
	for id := range known { // any order: each is handled by itself
		if !slices.Contains(ids, id) {
			c.Forget(id)
		}
	}
}

// Ensure captures the connections in a namespace and proves the capture, unless this process has done
// so already with the same flags, and nothing was changed since. If the right rules are present, they are proven and
// not written again. From then on they are watched. The pod's name, NAMESPACE/NAME, may be empty.
func (c *Captures) Ensure(ctx context.Context, id, pod, namespace string, flags []string) error {
	d, err := describe(namespace, flags)
	if err != nil {
		return err
	}
	s := c.sandbox(id)
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	c.set(s, pod, d)
	if s.proven == s.key && !c.isDue(s) {
		return nil
	}
	_, err = c.prove(ctx, s)
	return err
}

// Restore has a sandbox captured and watched that a previous process has captured.
func (c *Captures) Restore(id, pod, namespace string, flags []string) error {
	d, err := describe(namespace, flags)
	if err != nil {
		return err
	}
	s := c.sandbox(id)
	if !s.tryLock() { // the agent runs in it, so this process knows it
		return nil
	}
	defer s.unlock()
	c.set(s, pod, d)
	if s.proven != s.key {
		c.changed(id)
	}
	return nil
}

// A description says what is to be captured in a sandbox.
type description struct {
	namespace  string // path of the network namespace
	key        string // the namespace and the arguments
	parsed     []string
	dnsServers bool
}

func describe(namespace string, flags []string) (description, error) {
	arguments, dns, err := Parse(flags)
	if err != nil {
		return description{}, err
	}
	return description{namespace, strings.Join(append([]string{namespace}, arguments...), "\x00"), arguments, dns}, apart(namespace)
}

// set records a description of a sandbox that is locked.
func (c *Captures) set(s *sandbox, pod string, d description) {
	c.mu.Lock()
	s.pod = cmp.Or(pod, s.pod)
	c.mu.Unlock()
	s.description = d
}

// A report is the agent's report of a capture.
type report struct {
	Unchanged bool // the right rules were there
	Backend   string
	Families  string
}

// prove runs the agent for a sandbox, which is locked, and watches the result. The watch begins before the
// agent: a change while it runs is reported afterwards, and so are the agent's own changes, unless they are
// known to be all. So each change is followed by a run that began after it.
func (c *Captures) prove(ctx context.Context, s *sandbox) (report, error) {
	s.proven = ""
	since := c.begins(s)
	r, err := c.capture(ctx, s)
	c.ends(s, r, since, err)
	if err != nil {
		return r, err
	}
	s.proven = s.key
	return r, nil
}

func (c *Captures) capture(ctx context.Context, s *sandbox) (r report, err error) {
	arguments := slices.Clone(s.parsed)
	switch servers := c.servers(s.id); {
	case !s.dnsServers:
	case servers != "":
		arguments = append(arguments, "--nameservers="+servers)
	default: // the pod's resolv.conf is not available here; capturing queries to all servers includes the servers of the pod
		arguments = append(arguments, "--capture-all-dns=true")
	}
	if err := c.watcher.Watch(s.id, s.namespace); err != nil {
		return r, err
	}
	text, err := c.run(ctx, append([]string{"capture", "--network-namespace=" + s.namespace, "--backend=auto", "--termination-log=", "--output=json"}, arguments...))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func addresses(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// apart returns an error if a namespace is the node's own.
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

// run waits until fewer than atOnce agents run, and then runs the agent, without this process's environment. It
// returns the agent's output. An error contains the agent's last messages.
func (c *Captures) run(ctx context.Context, arguments []string) ([]byte, error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return nil, fmt.Errorf("capturing, in its turn after others: %w", context.Cause(ctx))
	}
	said, out := &tail{max: maxReport}, &tail{max: maxTail}
	cmd := exec.CommandContext(ctx, c.agent, arguments...)
	cmd.Env, cmd.Dir = environment, "/"
	cmd.Stdout, cmd.Stderr = said, out
	err := cmd.Start()
	if err == nil {
		if c.procs != "" {
			_ = os.WriteFile(c.procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0) // an error means that the process has ended
		}
		err = cmd.Wait()
	}
	switch {
	case err == nil:
		return said.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("capturing: %w", context.Cause(ctx))
	}
	if text := out.text(); text != "" {
		return nil, fmt.Errorf("capturing: %w: %s", err, text)
	}
	return nil, fmt.Errorf("capturing: %w", err)
}

// tail is a writer that stores only the end of its input.
type tail struct {
	bytes.Buffer
	max int
}

const (
	maxTail   = 2 << 10
	maxReport = 64 << 10
)

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p[max(0, len(p)-t.max):])
	t.Next(max(0, t.Len()-t.max))
	return len(p), nil
}

func (t *tail) text() string { return strings.Join(strings.Fields(t.String()), " ") }

// Parse parses the flags in an annotation. It returns the agent's arguments, and whether they capture
// DNS by the pod's own servers. Only settings of a capture's intent are accepted.
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
	var bad *pflag.InvalidValueError // its own text would contain the full value
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

// given is a flag that appends itself, with the given value, to the arguments.
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

// Ready reports whether the agent's program exists.
func (c *Captures) Ready() error {
	_, err := os.Stat(c.agent)
	return err
}
