package containerinit

import (
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// exec replaces this process with the command. It returns only on failure.
func (p Process) exec() error {
	unix.Umask(0o022)
	if err := p.User.take(); err != nil {
		return err
	}
	env := p.withHome()
	dir := p.Dir
	if dir == "" {
		dir = "/"
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("chdir to the working directory: %w", err)
	}
	path, err := p.find(env)
	if err != nil {
		return fmt.Errorf("exec: %q: %w", p.Argv[0], err)
	}
	err = syscall.Exec(path, p.Argv, env)
	return fmt.Errorf("exec: %q: %w", p.Argv[0], err)
}

// find returns the path of the command. It searches PATH if the name has no slash.
func (p Process) find(env []string) (string, error) {
	name := p.Argv[0]
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err
	}
	for _, dir := range filepath.SplitList(lookup(env, "PATH")) {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) == nil {
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("executable file not found in $PATH")
}

func lookup(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// withHome returns the environment with HOME. If HOME is not set, it comes from the container's /etc/passwd, as
// in a runtime.
func (p Process) withHome() []string {
	if slices.ContainsFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") }) {
		return p.Env
	}
	home := "/"
	if u, err := osuser.LookupId(strconv.Itoa(p.User.UID)); err == nil && u.HomeDir != "" {
		home = u.HomeDir
	}
	return append(slices.Clone(p.Env), "HOME="+home)
}

// take drops the capabilities that the user must not have, and then changes to the user. When the command is
// executed, root keeps the capabilities within Bounds, and any other user loses all.
func (u User) take() error {
	for c := range uintptr(lastCapability() + 1) {
		if u.Bounds&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("giving up capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up ambient capabilities: %w", err)
	}
	if err := syscall.Setgroups(u.Groups); err != nil {
		return fmt.Errorf("setting groups %v: %w", u.Groups, err)
	}
	if err := syscall.Setgid(u.GID); err != nil {
		return fmt.Errorf("becoming group %d: %w", u.GID, err)
	}
	if err := syscall.Setuid(u.UID); err != nil {
		return fmt.Errorf("becoming user %d: %w", u.UID, err)
	}
	if u.NoNewOnes {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("refusing new privileges: %w", err)
		}
	}
	return u.narrow()
}

// narrow removes all capabilities outside Bounds from this process, and clears the inheritable set.
func (u User) narrow() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	for i := range data {
		bounds := uint32(u.Bounds >> (32 * i))
		data[i].Effective &= bounds
		data[i].Permitted &= bounds
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("setting capabilities: %w", err)
	}
	return nil
}

// lastCapability returns the highest capability of this kernel.
func lastCapability() int {
	for c := uintptr(63); c > 0; c-- {
		if v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && v >= 0 {
			return int(c)
		}
	}
	return 0
}
