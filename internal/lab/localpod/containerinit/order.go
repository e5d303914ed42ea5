package containerinit

// An Order is what a process that was started again is to become. It reads
// it from a pipe.
type Order struct {
	Root    *Root // of a new container; nil: it enters one that runs
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
	Bounds    uint64 // the capabilities that it can have at all
	NoNewOnes bool   // allowPrivilegeEscalation: false
}

// A Root is how a container's file system is made.
type Root struct {
	Stage   string   // directory of the node for what is written into the container
	Host    []string // where this machine's file systems are mounted, each after the one that holds it
	Overlay bool     // false: they are only shown, and only their directories are
	Mounts  []Mount
	Files   []File

	ReadOnly   bool
	Privileged bool
}

// A Mount is something of the node that is seen in a container.
type Mount struct {
	From     string // on the node
	Sub      string // below From; made if it is not there
	To       string // in the container; made if it is not there
	ReadOnly bool
}

// A File is written into a container's file system, or into a volume.
type File struct {
	Path string
	Data []byte
	Mode uint32
}

// An Answer is the report of a new process. Nothing more after the first
// one means that the command runs.
type Answer struct {
	PID   int    // as this process sees it
	Error string // why there is no command
}

// NodeDir is where a node keeps the files of its pods, on a tmpfs that only it and its
// pods see. It exists on every Linux, and nothing in a pod needs the machine's own.
const NodeDir = "/sys"

// The values of argv[0] by which a program that is started again finds its role.
const (
	RoleNode      = "outrider: node"
	RoleContainer = "outrider: container"
	roleFirst     = "outrider: first process"
	RoleExec      = "outrider: exec"
)

// The files of a new process, besides the usual three.
const (
	fdOrder  = 3
	fdAnswer = 4
	fdMounts = 5 // of RoleExec: the mount namespace to enter
)
