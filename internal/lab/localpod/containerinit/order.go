package containerinit

// An Order describes the container and the command for a process that was started with a role. The process reads
// it from a pipe.
type Order struct {
	Root    *Root // the file system of a new container; nil to enter a running one
	Process Process
}

// A Process is a command and its user.
type Process struct {
	Argv []string
	Env  []string
	Dir  string
	User User
}

// A User is a process's user, groups and capabilities.
type User struct {
	UID, GID  int
	Groups    []int
	Bounds    uint64 // the largest set of capabilities that it can gain
	NoNewOnes bool   // allowPrivilegeEscalation: false
}

// A Root describes a container's file system.
type Root struct {
	Stage   string   // directory on the node for the files that the container writes
	Host    []string // mount points of this machine's file systems that the container sees, each after its parent
	Overlay bool     // if false, the machine's directories are read-only, and files directly in / are missing
	Mounts  []Mount
	Files   []File

	ReadOnly   bool
	Privileged bool
}

// A Mount makes a file or directory of the node visible in a container.
type Mount struct {
	From     string // path on the node
	Sub      string // path below From; created if missing
	To       string // path in the container; created if missing
	ReadOnly bool
}

// A File is written into a container's file system or into a volume.
type File struct {
	Path string
	Data []byte
	Mode uint32
}

// An Answer is a report of a new process. The first contains its PID, or the error if it failed before. A second
// one comes only if the command could not be run.
type Answer struct {
	PID   int    // of a container: in the PID namespace of the program that runs the pod
	Error string // why the command could not be run
}

// NodeDir is the directory for the files of a node's pods, on a tmpfs that only the node and its pods see. It is
// /sys because that exists on every Linux, and no process of a pod needs the machine's /sys.
const NodeDir = "/sys"

// These are the values of argv[0] that give a restarted program its role.
const (
	RoleNode      = "outrider: node"
	RoleContainer = "outrider: container"
	roleFirst     = "outrider: first process"
	RoleExec      = "outrider: exec"
)

// These are the file descriptors of a new process, besides the three standard ones.
const (
	fdOrder  = 3
	fdAnswer = 4
	fdMounts = 5 // for RoleExec: the mount namespace to enter
)
