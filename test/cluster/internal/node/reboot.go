package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/test/cluster/internal/cgroup"
)

// restart kills a program and starts it again. Containers keep running, because their parents are containerd's shims.
func (p *programs) restart(ctx context.Context, name string) error {
	old := p.running[name]
	// The program may have ended before.
	if err := old.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-old.ended
	switch name {
	case "kubelet":
		return p.start(nodeGroup, kubelet(p.config))
	case "kube-apiserver":
		return p.start(systemGroup, apiServer(p.config))
	}
	return errors.Join(p.start(nodeGroup, containerd(p.config)), awaitRuntime(ctx))
}

// reboot kills everything on the node as a power loss does, and starts the node again. Everything
// in memory is lost: processes, mounts, /run, rules and bridges. Files on disk stay, and so does
// the control plane, which could be on another machine.
func (p *programs) reboot(ctx context.Context) error {
	if err := p.powerOff(ctx); err != nil {
		return fmt.Errorf("ending the node: %w", err)
	}
	boot, err := newBoot()
	if err != nil {
		return err
	}
	if err := errors.Join(p.start(nodeGroup, containerd(p.config)), awaitRuntime(ctx)); err != nil {
		return err
	}
	if err := p.start(nodeGroup, kubelet(p.config), kubeProxy(p.config)); err != nil {
		return err
	}
	api, err := newClient(p.config)
	if err != nil {
		return err
	}
	// The Node object shows the old state for a while.
	return api.await(ctx, func(api *client, ctx context.Context) error {
		node, err := api.node(ctx)
		if err != nil {
			return err
		}
		if node.Status.NodeInfo.BootID != boot {
			return errors.New("the kubelet has not reported after the reboot")
		}
		return node.ready()
	})
}

func (p *programs) powerOff(ctx context.Context) error {
	// Kill the runtime's programs first, so that they cannot start more containers.
	for _, group := range []string{nodeGroup, "kubepods"} {
		if err := cgroup.Kill(ctx, p.config.Group, group); err != nil {
			return err
		}
	}
	for _, c := range []component{containerd(p.config), kubelet(p.config), kubeProxy(p.config)} {
		<-p.running[c.name].ended
	}
	if err := cgroup.RemovePods(ctx, p.config.Group); err != nil {
		return err
	}
	if err := p.unmountNew(); err != nil {
		return err
	}
	if err := unix.Unmount("/run", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting /run: %w", err)
	}
	if err := errors.Join(mount("tmpfs", "/run", "tmpfs", 0), makeDirectories(runDirectories...)); err != nil {
		return err
	}
	var err error
	if p.mounts, err = mountsNow(); err != nil {
		return err
	}
	return resetNetwork(ctx)
}

// unmountNew unmounts everything that was mounted since the node's start, the latest first. Unmounting
// one may remove others, so the mounts are listed again after each.
func (p *programs) unmountNew() error {
	for {
		all, err := mounts()
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(m mountPoint) bool { return p.mounts[m.id] })
		if len(all) == 0 {
			return nil
		}
		last := all[len(all)-1].point
		if err := unix.Unmount(last, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", last, err)
		}
	}
}

// resetNetwork removes the nftables rules and the pods' bridge. The pods' other devices have disappeared
// with the pods' namespaces.
func resetNetwork(ctx context.Context) error {
	commands := [][]string{{"nft", "flush", "ruleset"}}
	if _, err := net.InterfaceByName(PodBridge); err == nil {
		commands = append(commands, []string{"ip", "link", "delete", PodBridge})
	}
	for _, c := range commands {
		if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// newBoot generates the boot ID by which the kubelet tells a reboot from its own restart.
func newBoot() (id string, err error) {
	var b [16]byte
	rand.Read(b[:])
	id = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return id, os.WriteFile(tunableFile("kernel/random/boot_id"), []byte(id+"\n"), 0o644)
}
