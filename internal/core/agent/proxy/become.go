package proxy

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A User is the user that a process changes to.
type User struct {
	UID, GID int
	Groups   []int // in addition to GID
}

// Become replaces this process with a program that runs as that user. The program has no
// capability and cannot get one: the bounding set is empty, and no_new_privs makes
// set-user-ID bits and file capabilities ineffective.
//
// Become needs CAP_SETUID, CAP_SETGID and, unless the bounding set is empty, CAP_SETPCAP. It
// returns only if it fails; then the process may have lost some privileges and must exit.
// Become never runs the program with more privileges than described.
func Become(u User, path string, argv, env []string) error {
	// Capabilities belong to a thread. execve keeps the capabilities of the calling thread, and
	// ends the other threads.
	runtime.LockOSThread()
	u.Groups = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(u.Groups), u.GID))))
	if err := u.take(); err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return err
	}
	return fmt.Errorf("running %s: %w", path, syscall.Exec(path, argv, env))
}

// take changes to the user. The order matters: each step needs a capability that a later step
// drops.
func (u User) take() error {
	for c := uintptr(0); ; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // the kernel has no more capabilities
		}
		if held == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("taking capability %d out of the bounding set: %w (it takes SETPCAP)", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up ambient capabilities: %w", err)
	}
	if err := unix.Setgroups(u.Groups); err != nil {
		return fmt.Errorf("setting the groups %v: %w (it takes SETGID)", u.Groups, err)
	}
	if err := unix.Setresgid(u.GID, u.GID, u.GID); err != nil {
		return fmt.Errorf("becoming group %d: %w (it takes SETGID)", u.GID, err)
	}
	if err := unix.Setresuid(u.UID, u.UID, u.UID); err != nil {
		return fmt.Errorf("becoming user %d: %w (it takes SETUID)", u.UID, err)
	}
	// A change of user keeps inheritable capabilities, and more with SECBIT_KEEP_CAPS.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refusing new privileges: %w", err)
	}
	return nil
}

// check compares the IDs and capabilities in /proc with the wanted ones.
func (u User) check() error {
	const file = "/proc/thread-self/status"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Join(strings.Fields(value), " ")
	}
	four := func(id int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+" ", 4)) }
	const no = "0000000000000000"
	for _, want := range []struct{ name, value string }{
		{"Uid", four(u.UID)}, {"Gid", four(u.GID)}, {"Groups", strings.Trim(fmt.Sprint(u.Groups), "[]")},
		{"CapInh", no}, {"CapPrm", no}, {"CapEff", no}, {"CapBnd", no}, {"CapAmb", no}, {"NoNewPrivs", "1"},
	} {
		if got[want.name] != want.value {
			return fmt.Errorf("%s: %s is %q, want %q", file, want.name, got[want.name], want.value)
		}
	}
	return nil
}
