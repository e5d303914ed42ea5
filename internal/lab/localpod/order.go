package localpod

// An order is what a process that was started by this package is to become. It reads
// it from a pipe.
type order struct {
	Root    *root // of a new container; nil: it enters one that runs
	Process process
}

// A process is a command and its user.
type process struct {
	Argv []string
	Env  []string
	Dir  string
	User user
}

// A user is a process's user, groups and capabilities.
type user struct {
	UID, GID  int
	Groups    []int
	Bounds    uint64 // the capabilities that it can have at all
	NoNewOnes bool   // allowPrivilegeEscalation: false
}

// A root is how a container's file system is made.
type root struct {
	Stage   string   // directory of the node for what is written into the container
	Host    []string // where this machine's file systems are mounted, each after the one that holds it
	Overlay bool     // false: they are only shown, and only their directories are
	Mounts  []mount
	Files   []file

	ReadOnly   bool
	Privileged bool
}

// A mount is something of the node that is seen in a container.
type mount struct {
	From     string // on the node
	Sub      string // below From; made if it is not there
	To       string // in the container; made if it is not there
	ReadOnly bool
}

// A file is written into a container's file system, or into a volume.
type file struct {
	Path string
	Data []byte
	Mode uint32
}

// An answer is the report of a new process. Nothing more after the first
// one means that the command runs.
type answer struct {
	PID   int    // as this process sees it
	Error string // why there is no command
}

// The values of argv[0] by which a program that this package starts again finds its role.
const (
	roleNode      = "outrider: node"
	roleContainer = "outrider: container"
	roleFirst     = "outrider: first process"
	roleExec      = "outrider: exec"
)

// The files of a new process, besides the usual three.
const (
	fdOrder  = 3
	fdAnswer = 4
	fdMounts = 5 // of roleExec: the mount namespace to enter
)
