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

// ErrNotRoot is the error if the user may not create a node.
var ErrNotRoot = errors.New("running a pod needs root: it makes network namespaces and mounts of its own")

// NodeOptions are the options of [NewNode]. The zero value of a field means its default.
type NodeOptions struct {
	Name string       // default: "node"
	IPv4 netip.Prefix // network of node and pods, from [ParseNetwork]; default 10.244.0.0/24
}

// A Node is a set of namespaces that acts as a private machine, with its own network, mounts and processes. Its
// pods can reach each other. It leaves nothing behind, not even if the program that made it is killed.
type Node struct {
	Name string

	program *os.File // the file of this program
	keeper  *exec.Cmd
	life    *os.File // the node ends when the last copy of this file is closed
	net     space
	pid     space
	mnt     space

	network  network
	mu       sync.Mutex
	pods     int
	commands sync.WaitGroup
}

// NewNode creates a node, which the caller must close. It needs root, and a program that has called
// containerinit.Become.
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
	// in any order: all of them are needed
	for kind, s := range map[int]*space{unix.CLONE_NEWNET: &n.net, unix.CLONE_NEWPID: &n.pid, unix.CLONE_NEWNS: &n.mnt} {
		if *s, err = openSpace(of, kind); err != nil {
			return err
		}
	}
	return nil
}

// program opens this program through a separate read-only mount. In a container, this program runs before the
// command, and again for each hook. Without the mount, a container could overwrite its file through /proc/PID/exe
// of such a process, and the user would run the changed program next time (CVE-2019-5736 in runc).
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
	// The program is started as /proc/self/fd/NUMBER. Before that, syscall.forkExec copies the files of the new
	// process to the numbers just above their highest number. If the program's file had one of these numbers,
	// it would be replaced. So it gets a high number.
	const high = 1000 // the limit of open files is rarely below 1024
	fd, err := unix.FcntlInt(uintptr(tree), unix.F_DUPFD_CLOEXEC, high)
	if err != nil {
		return nil, fmt.Errorf("keeping this program open: %w", err)
	}
	return os.NewFile(uintptr(fd), "program"), nil
}

// again returns a command that runs this program again in a role. The new process reads its order from file 3, if
// there is one, and writes its answers to file 4.
func (n *Node) again(role string, in, answers *os.File) *exec.Cmd {
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", n.program.Fd()))
	cmd.Args = []string{role}
	cmd.Env = []string{}
	cmd.Stdin = in
	cmd.ExtraFiles = []*os.File{nil, answers}
	return cmd
}

// Close kills all processes on the node, waits for them, and removes the node.
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

// Do runs f in the node's network. Sockets that f creates stay in that network.
func (n *Node) Do(f func() error) error { return inside(f, n.net) }

// Listen listens on a TCP address in the node's network.
func (n *Node) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Command starts a command in the node's network. If it still runs when the node is closed, it is killed. The
// returned function waits for its end; call it at most once.
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

// Serve starts a command on the node, as [Node.Command] does, and returns when it has printed a line that
// contains the text until. It fails if the command ends earlier. It copies all output to log.
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

// path returns a path by which this machine can open a file of the node.
func (n *Node) path(elem ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(n.keeper.Process.Pid), "root"}, elem...)...)
}

// onNode runs f in the node's mount namespace.
func (n *Node) onNode(f func() error) error { return inside(f, n.mnt) }

// pseudo are types of file systems that are not copied from the machine: a container gets a new one or none.
var pseudo = map[string]bool{"proc": true, "sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true,
	"mqueue": true, "debugfs": true, "tracefs": true, "securityfs": true, "pstore": true, "bpf": true, "configfs": true,
	"fusectl": true, "hugetlbfs": true, "binfmt_misc": true, "autofs": true, "nsfs": true, "rpc_pipefs": true, "efivarfs": true}

// written are the files of which every container gets its own.
var written = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// machineMounts returns the mount points of this machine's file systems that are shown in containers. info has
// the format of /proc/self/mountinfo.
func machineMounts(info io.Reader) ([]string, error) {
	all, err := mountinfo.GetMountsFromReader(info, nil)
	var out []string
	for _, m := range all {
		at := m.Mountpoint
		out = slices.DeleteFunc(out, func(below string) bool { return below == at }) // the later mount hides the earlier one
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
