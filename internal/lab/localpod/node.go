package localpod

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// ErrNotRoot is the error of a user that cannot make a node.
var ErrNotRoot = errors.New("running a pod needs root: it makes network namespaces and mounts of its own")

// NodeOptions are about the private machine. The zero value of a field means its default.
type NodeOptions struct {
	Name string       // default: "node"
	IPv4 netip.Prefix // of node and pods, from [ParseNetwork]; default 10.244.0.0/24
}

// A Node is a private machine, within this one, for pods that can reach one another:
// network, mounts and processes of its own. It leaves nothing behind, not even when
// the program that made it is killed.
type Node struct {
	Name string

	program *os.File // this one
	keeper  *exec.Cmd
	life    *os.File // the node ends when the last copy is closed
	net     space
	pid     space
	mnt     space

	network  network
	mu       sync.Mutex
	pods     int
	commands sync.WaitGroup
}

// NewNode makes a node. It must be closed.
func NewNode(o NodeOptions) (*Node, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if !containerinit.Called() {
		return nil, errors.New("this program runs pods, and its main does not call containerinit.Become: it would start itself for ever")
	}
	if o.Name == "" {
		o.Name = "node"
	}
	n := &Node{Name: o.Name}
	if err := n.start(); err != nil {
		n.Close()
		return nil, fmt.Errorf("making a node: %w", err)
	}
	if err := n.connect(o); err != nil {
		n.Close()
		return nil, fmt.Errorf("making the node's network: %w", err)
	}
	return n, nil
}

func (n *Node) start() error {
	in, life, err := os.Pipe()
	if err != nil {
		return err
	}
	n.life = life
	defer in.Close()
	answers, reply, err := os.Pipe()
	if err != nil {
		return err
	}
	defer answers.Close()
	if n.program, err = program(); err != nil {
		return err
	}
	n.keeper = n.again(containerinit.RoleNode, in, reply)
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC}
	err = n.keeper.Start()
	reply.Close()
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w; this root may not: %w", ErrNotRoot, err)
	}
	if err != nil {
		n.keeper = nil
		return err
	}
	var a containerinit.Answer
	if err := json.NewDecoder(answers).Decode(&a); err != nil || a.Error != "" {
		return fmt.Errorf("its first process did not start: %s%w", a.Error, err)
	}
	of := strconv.Itoa(n.keeper.Process.Pid)
	// any order: each of them is needed.
	for kind, s := range map[int]*space{unix.CLONE_NEWNET: &n.net, unix.CLONE_NEWPID: &n.pid, unix.CLONE_NEWNS: &n.mnt} {
		if *s, err = openSpace(of, kind); err != nil {
			return err
		}
	}
	return nil
}

// program is this program by a read-only mount of its own. A container has it as a process
// before its command, and again for each of its hooks: through /proc/PID/exe of that process it
// could write what our user runs next (runc had that as CVE-2019-5736).
func program() (*os.File, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/exe", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w; this root may not: %w", ErrNotRoot, err)
	case errors.Is(err, unix.ENOSYS):
		return nil, errors.New("the kernel cannot make a mount read-only on its own: it needs Linux 5.12")
	case err != nil:
		return nil, fmt.Errorf("mounting this program read-only: %w", err)
	}
	defer unix.Close(tree)
	// The program is started by its number. A new process first copies its files to the numbers
	// above the highest of them (syscall.forkExec), which would replace a program that is there.
	const high = 1000 // a limit of open files is seldom below 1024
	fd, err := unix.FcntlInt(uintptr(tree), unix.F_DUPFD_CLOEXEC, high)
	if err != nil {
		return nil, fmt.Errorf("keeping this program open: %w", err)
	}
	return os.NewFile(uintptr(fd), "program"), nil
}

// again is this program, to be started in another role. The order is read from file 3,
// if there is one, and the answer goes to file 4.
func (n *Node) again(role string, in, answers *os.File) *exec.Cmd {
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", n.program.Fd()))
	cmd.Args = []string{role}
	cmd.Env = []string{}
	cmd.Stdin = in
	cmd.ExtraFiles = []*os.File{nil, answers}
	return cmd
}

// Close ends the node and everything on it.
func (n *Node) Close() error {
	if n.life != nil {
		n.life.Close()
	}
	n.commands.Wait()
	var err error
	if n.keeper != nil && n.keeper.Process != nil {
		err = n.keeper.Wait()
	}
	for _, s := range []space{n.net, n.pid, n.mnt} {
		s.Close()
	}
	if n.program != nil {
		n.program.Close()
	}
	return err
}

// Do runs f in the node's network: sockets that f makes belong to it for ever.
func (n *Node) Do(f func() error) error { return inside(f, n.net) }

// Listen listens on an address of the node.
func (n *Node) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Command starts a command on the node, with its network, and ends it with the node at
// the latest. Wait for it with the function that is returned, once.
func (n *Node) Command(cmd *exec.Cmd) (wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := inside(cmd.Start, n.net, n.pid); err != nil {
		return nil, fmt.Errorf("starting %s on the node: %w", cmd.Path, err)
	}
	n.commands.Add(1)
	ended := make(chan error, 1)
	go func() {
		defer n.commands.Done()
		ended <- cmd.Wait()
	}()
	return func() error { return <-ended }, nil
}

// Serve starts a command on the node, as [Node.Command] does, and returns when it has printed a text. All that
// it prints is written to log.
func (n *Node) Serve(cmd *exec.Cmd, until string, log io.Writer) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = write, write
	_, err = n.Command(cmd)
	write.Close()
	lines := bufio.NewScanner(io.TeeReader(read, log))
	lines.Buffer(nil, 1<<20)
	for err == nil && lines.Scan() {
		if strings.Contains(lines.Text(), until) {
			go func() {
				defer read.Close()
				_, _ = io.Copy(log, read)
			}()
			return nil
		}
	}
	read.Close()
	return cmp.Or(err, fmt.Errorf("%s ended before it printed %s", cmd.Path, until))
}

// path returns the path of a node's file on this machine.
func (n *Node) path(elem ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(n.keeper.Process.Pid), "root"}, elem...)...)
}

// onNode runs f among the node's mounts.
func (n *Node) onNode(f func() error) error { return inside(f, n.mnt) }

// pseudo are file systems that a container gets anew, or not at all.
var pseudo = map[string]bool{"proc": true, "sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true,
	"mqueue": true, "debugfs": true, "tracefs": true, "securityfs": true, "pstore": true, "bpf": true, "configfs": true,
	"fusectl": true, "hugetlbfs": true, "binfmt_misc": true, "autofs": true, "nsfs": true, "rpc_pipefs": true, "efivarfs": true}

// written are files that every container has as its own.
var written = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// machineMounts reads where this machine's file systems are mounted, of the ones that
// a container is shown.
func machineMounts(info io.Reader) ([]string, error) {
	all, err := mountinfo.GetMountsFromReader(info, nil)
	var out []string
	for _, m := range all {
		at := m.Mountpoint
		out = slices.DeleteFunc(out, func(below string) bool { return below == at }) // this one hides it
		if at != "/" && !pseudo[m.FSType] && !private(at) {
			out = append(out, at)
		}
	}
	return out, err
}

func private(at string) bool {
	below := func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }
	return slices.Contains(written, at) || slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/run", "/var/run"}, below)
}
