package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Restart kills a program of the node, such as the kubelet, starts it again as it was, and waits
// until it answers.
func (w *World) Restart(ctx context.Context, name string) error {
	answers, ok := map[string][]string{
		"kubelet":        {"kubectl", "get", "--raw=/api/v1/nodes/node1/proxy/healthz"},
		"containerd":     {"ctr", "version"},
		"kube-apiserver": {"kubectl", "get", "--raw=/readyz"},
	}[name]
	if !ok {
		return fmt.Errorf("no program %q to restart", name)
	}
	pid, err := program(name)
	if err != nil {
		return err
	}
	again, err := sameAs(pid)
	if err != nil {
		return fmt.Errorf("process %d, %s: %w", pid, name, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if err := w.Until(ctx, name+" is gone", func() bool { return Gone(pid) }); err != nil {
		return err
	}
	if err := again.Start(); err != nil {
		return fmt.Errorf("starting %s again: %w", name, err)
	}
	go again.Wait()
	last := error(nil)
	err = w.Until(ctx, name+" answers", func() bool {
		last = exec.CommandContext(ctx, answers[0], answers[1:]...).Run()
		return last == nil
	})
	return errors.Join(err, last)
}

// program is the process of a name; there is one.
func program(name string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range all {
		text, _ := os.ReadFile(file) // it may be gone
		first, _, _ := bytes.Cut(text, []byte{0})
		if filepath.Base(string(first)) != name {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process %s", name)
}

// sameAs is a command with the arguments, the environment and the log of a process.
func sameAs(pid int) (*exec.Cmd, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	args, err := os.ReadFile(dir + "cmdline")
	env, err2 := os.ReadFile(dir + "environ")
	path, err3 := os.Readlink(dir + "exe")
	logFile, err4 := os.Readlink(dir + "fd/2")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	words := func(text []byte) []string { return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00") }
	return &exec.Cmd{Path: path, Args: words(args), Env: words(env), Dir: "/", Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}, nil
}

// Gone reports whether a process has ended, and its files and connections are closed. Its parent
// may not have reaped it yet.
func Gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The name in parentheses may hold anything; the rest counts from the third field. A process
	// whose first thread has ended still has the files of the others.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return len(fields) < 18 || fields[0] == "X" || fields[0] == "Z" && fields[17] == "1"
}
