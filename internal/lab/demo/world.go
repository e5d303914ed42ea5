package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/lab/localpod"
)

// Programs are the paths of the programs that the demo runs.
type Programs struct{ Outrider, Agent, ControlPlane, Envoy string }

// A ProgramError is the error for a program that the demo cannot use.
type ProgramError struct {
	Program string
	Err     error
}

func (e *ProgramError) Error() string { return fmt.Sprintf("the demo needs %s: %v", e.Program, e.Err) }

func (e *ProgramError) Unwrap() error { return e.Err }

// Check runs each program to print its version. Otherwise a program that does not work would fail only during an
// act, where the kubelet would restart it again and again. The error is a [*ProgramError].
func (p Programs) Check() error {
	for _, one := range []struct{ name, path, flag, prints string }{
		{"outrider", p.Outrider, "version", "outrider "},
		{"outrider-agent", p.Agent, "version", "outrider-agent "},
		{"outriderd", p.ControlPlane, "version", "outriderd "},
		{"Envoy", p.Envoy, "--version", "version:"},
	} {
		out, err := exec.Command(one.path, one.flag).CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte(one.prints)) {
			err = fmt.Errorf("it prints %.60q", out)
		}
		if err != nil {
			return &ProgramError{one.name, fmt.Errorf("%s %s: %w", one.path, one.flag, err)}
		}
	}
	return nil
}

// A world is the node on which the acts are played, with the control plane and the configuration server.
type world struct {
	programs Programs
	dir      string // contains the folders mesh and state
	node     *localpod.Node
	log      *os.File
}

// open creates a world. close ends all its parts.
func open(p Programs, services int) (w *world, err error) {
	w = &world{programs: p}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "outrider-demo-"); err != nil {
		return w, err
	}
	for _, sub := range []string{"mesh", "state"} {
		if err := os.Mkdir(filepath.Join(w.dir, sub), 0o700); err != nil {
			return w, err
		}
	}
	if w.node, err = localpod.NewNode(localpod.NodeOptions{Name: "demo"}); err != nil {
		return w, err
	}
	address := w.node.Addresses()[0]
	if err := writeMesh(w.mesh(), services, address); err != nil {
		return w, err
	}
	l, err := w.node.Listen(net.JoinHostPort(address.String(), strconv.Itoa(centrePort)))
	if err != nil {
		return w, fmt.Errorf("starting the config centre: %w", err)
	}
	go http.Serve(l, Centre()) // serves until this process ends
	return w, w.startControlPlane()
}

func (w *world) mesh() string  { return filepath.Join(w.dir, "mesh") }
func (w *world) state() string { return filepath.Join(w.dir, "state") }

// startControlPlane starts the control plane, and returns when it serves.
func (w *world) startControlPlane() error {
	var err error
	if w.log, err = os.Create(filepath.Join(w.dir, "outriderd.log")); err != nil {
		return err
	}
	cmd := exec.Command(w.programs.ControlPlane, "serve", "--source", "files:"+w.mesh(), "--state", w.state())
	if err := w.node.Serve(cmd, `"msg":"serving"`, w.log); err != nil {
		text, _ := os.ReadFile(w.log.Name())
		return fmt.Errorf("outriderd did not start: %w: %s", err, text)
	}
	return nil
}

// token returns a service account token for the pod, from the command "outriderd token".
func (w *world) token(string) ([]byte, error) {
	out, err := exec.Command(w.programs.ControlPlane, "token", "--state", w.state(), "--namespace", "demo", "--service-account", "awesome").Output()
	if err != nil {
		return nil, fmt.Errorf("outriderd token: %w", err)
	}
	return []byte(strings.TrimSpace(string(out))), nil
}

// options returns the options that all pods of the demo share.
func (w *world) options() (localpod.Options, error) {
	root, err := os.ReadFile(filepath.Join(w.state(), "ca", "root-cert.pem"))
	if err != nil {
		return localpod.Options{}, err
	}
	address := w.node.Addresses()[0].String()
	return localpod.Options{
		ConfigMaps: []corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Name: "outrider-ca-root-cert", Namespace: "demo"},
			Data:       map[string]string{"root-cert.pem": string(root)},
		}},
		Binds: []localpod.Bind{
			{From: w.programs.Outrider, To: "/usr/local/bin/outrider"},
			{From: w.programs.Agent, To: "/usr/local/bin/outrider-agent"},
			{From: w.programs.Envoy, To: "/usr/local/bin/envoy"},
		},
		Token: w.token,
		Hosts: map[string]string{"outriderd.outrider-system.svc": address, centreHost: centreIP},
	}, nil
}

// client returns an HTTP client that connects from the node's network, outside of the pod.
func (w *world) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			inside := w.node.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, inside
		},
		MaxIdleConnsPerHost: 16,
	}}
}

func (w *world) close() error {
	var errs []error
	if w.node != nil {
		errs = append(errs, w.node.Close())
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
