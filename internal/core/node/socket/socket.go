// Package socket lets the CNI plugin ask the daemon on its node to capture a pod's connections. A
// connection carries one question and one answer. Only root can ask.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a question, which contains a pod's annotation, and of an answer.
const (
	maxQuestion = 1 << 20
	maxAnswer   = 64 << 10
	maxAtOnce   = 64 // questions handled at once; others wait
)

// Timeout limits a question and its answer: a capture takes some 30 ms; 20 at once on a loaded machine
// take seconds.
const Timeout = 30 * time.Second

// A Question describes a new sandbox, with the pod's annotation [outrider.dev/internal/base/contract.NodeWork].
// Without a namespace, it describes a sandbox that has ended.
type Question struct {
	Sandbox     string       `json:"sandbox"`
	Pod         string       `json:"pod,omitempty"`       // NAMESPACE/NAME, for people
	Namespace   string       `json:"namespace,omitempty"` // path of its network namespace
	Work        string       `json:"work,omitempty"`
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
}

type answer struct {
	Error string `json:"error,omitempty"`
}

// ErrAbsent means that no daemon has read the question.
var ErrAbsent = errors.New("outrider-node does not run on this node")

// Ask returns nil once the daemon at path has done what the question requires, or an error that says
// why it has not.
func Ask(ctx context.Context, path string, q Question) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	var a answer
	err = json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&a)
	if errors.Is(err, unix.ECONNRESET) { // the daemon has ended, and the question was still in the kernel's queue
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	if err != nil {
		return fmt.Errorf("outrider-node gave no answer: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// Serve answers questions at path, until ctx ends. It replaces the socket of a previous daemon.
func Serve(ctx context.Context, path string, handle func(context.Context, Question) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// The socket is created under another name and renamed, so that a plugin always finds the old or
	// the new one.
	first := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(first) // left by a process that was killed
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(first, 0o600), os.Rename(first, path)); err != nil {
		l.Close()
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	turns := make(chan struct{}, maxAtOnce)
	for {
		turns <- struct{}{}
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			l.Close()
			return err
		}
		go func() {
			defer func() { <-turns }()
			defer conn.Close()
			serve(ctx, conn, handle)
		}()
	}
}

func serve(ctx context.Context, conn *net.UnixConn, handle func(context.Context, Question) error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errors.New("it took too long"))
	defer cancel()
	deadline, _ := ctx.Deadline()
	if conn.SetDeadline(deadline) != nil {
		return
	}
	var a answer
	var q Question
	err := root(conn)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&q)
	}
	if err == nil {
		err = handle(ctx, q)
	}
	if err != nil {
		a.Error = err.Error()
		a.Error = a.Error[:min(len(a.Error), maxAnswer/8)] // JSON may need six bytes to encode one byte
	}
	_ = json.NewEncoder(conn).Encode(a) // if the plugin has disconnected, it will ask again
}

// root returns an error unless the peer is a process of root.
func root(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if cred.Uid != 0 {
		return fmt.Errorf("user %d may not ask: only root", cred.Uid)
	}
	return nil
}
