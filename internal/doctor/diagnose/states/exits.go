package states

// An Exit says what a status of a program means by itself: those of shells, and 128 and the number of a signal.
type Exit struct {
	Status   int
	Sentence string // after the container's name
	Remedy   string // empty: only its log says what is to be done
	Outside  bool   // another program ended it
}

const whoEnds = "see what ends containers there: the messages of the node's kernel (out of memory), of the container runtime, and who has access"

// exits has the statuses of which the meaning is known. Source: POSIX shells (126, 127), signal(7).
var exits = []Exit{
	{Status: 0, Sentence: "ended by itself, as if its work were done", Remedy: "let its program run in the foreground, without an end; of work that is done once, make a Job"},
	{Status: 126, Sentence: "ended by itself: its command cannot be executed", Remedy: "see whether the file may be executed by the container's user, and is a program for the node's CPU"},
	{Status: 127, Sentence: "ended by itself: its command, or one in its script, was not found", Remedy: "correct the command, or use an image that has it"},
	{Status: 129, Sentence: "was ended by SIGHUP, and the evidence does not say by whom", Remedy: whoEnds, Outside: true},
	{Status: 130, Sentence: "was interrupted (SIGINT), and the evidence does not say by whom", Remedy: whoEnds, Outside: true},
	{Status: 131, Sentence: "was ended by SIGQUIT, and the evidence does not say by whom", Remedy: whoEnds, Outside: true},
	{Status: 132, Sentence: "ended by itself: it used an instruction that the node's CPU does not have (SIGILL)", Remedy: "use an image for the CPU of the node"},
	{Status: 133, Sentence: "ended by itself: a check of its runtime failed (SIGTRAP)"},
	{Status: 134, Sentence: "ended by itself: it aborted (SIGABRT), as programs do after a failed check"},
	{Status: 135, Sentence: "ended by itself: it used memory that is not there (SIGBUS)", Remedy: "see whether a file that it maps was cut, or /dev/shm is full"},
	{Status: 136, Sentence: "ended by itself: it divided by zero, or the like (SIGFPE)"},
	{Status: 137, Sentence: "was killed (SIGKILL), and the evidence does not say by whom", Remedy: whoEnds, Outside: true},
	{Status: 139, Sentence: "ended by itself: it used memory that is not its own (SIGSEGV)", Remedy: "it is a fault of the program, of a native library, or of an image for another CPU"},
	{Status: 141, Sentence: "ended by itself: it wrote to a pipe or connection that was closed (SIGPIPE)", Remedy: "see what reads its output"},
	{Status: 143, Sentence: "was asked to end (SIGTERM), and the evidence does not say by whom", Remedy: whoEnds, Outside: true},
	{Status: 152, Sentence: "was ended at its limit of processor time (SIGXCPU)", Remedy: "see its ulimit"},
	{Status: 153, Sentence: "ended by itself: it reached its limit of the size of a file (SIGXFSZ)", Remedy: "see its ulimit"},
	{Status: 159, Sentence: "ended by itself: it made a system call that it may not (SIGSYS)", Remedy: "see the seccomp profile of the container"},
}

// OfExit returns what a status means, and false if only the program knows.
func OfExit(status int) (Exit, bool) {
	for _, e := range exits {
		if e.Status == status {
			return e, true
		}
	}
	return Exit{}, false
}
