//go:build amd64 || arm64

package gate

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rtmin is the C library's SIGRTMIN. Package os/signal never tells of it: Go's runtime
// leaves it to musl (runtime/sigtab_linux_generic.go), so that it would end the gate, and
// unblocks it on each thread, so that no signalfd gets it either. So it has a handler of
// its own, which writes a byte into a pipe.
const rtmin = unix.Signal(34)

// rtminHandler returns the address of a handler that writes a byte to a descriptor. It is in
// assembly: the kernel calls it on the signal stack of some thread, where nothing of Go may run.
func rtminHandler(pipe int32) uintptr

// A sigaction is the kernel's, not the C library's.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// catchRTMin returns what can be read when rtmin came, a byte each time. The pipe stays for
// the life of the process, as the handler does.
var catchRTMin = sync.OnceValues(func() (*os.File, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making a pipe for signal %d: %w", rtmin, err)
	}
	// As the runtime has it for the signals that it handles: on the signal stack, and
	// interrupted calls go on.
	action, err := swapAction(unix.SIGTERM, nil)
	if err != nil {
		return nil, err
	}
	action.handler = rtminHandler(int32(ends[1]))
	if _, err := swapAction(rtmin, &action); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(ends[0]), "signal 34"), nil
})

// swapAction says what the process did about a signal; to is what it does from now on, or nil.
func swapAction(s unix.Signal, to *sigaction) (was sigaction, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&was)), unsafe.Sizeof(was.mask), 0, 0)
	if errno != 0 {
		return was, fmt.Errorf("handling signal %d: %w", s, errno)
	}
	return was, nil
}

// notifyRTMin is signal.Notify for rtmin.
func notifyRTMin(to chan<- os.Signal) error {
	from, err := catchRTMin()
	if err != nil {
		return err
	}
	go func() {
		for came := make([]byte, 64); ; {
			n, err := from.Read(came)
			if err != nil {
				return
			}
			for range n {
				select {
				case to <- rtmin:
				default: // as signal.Notify
				}
			}
		}
	}()
	return nil
}
