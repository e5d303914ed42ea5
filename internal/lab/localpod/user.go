package localpod

import (
	osuser "os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// capabilities lists the names of Linux capabilities; the index is the number. Source:
// include/uapi/linux/capability.h.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
	"SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
	"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE"}

// usual are the capabilities of a container whose spec sets none. Source: containerd pkg/oci/spec.go
// defaultUnixCaps.
const usual uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FSETID | 1<<unix.CAP_FOWNER | 1<<unix.CAP_MKNOD |
	1<<unix.CAP_NET_RAW | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_SETPCAP |
	1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_KILL | 1<<unix.CAP_AUDIT_WRITE

// podOnly are the capabilities that are allowed without --allow-privileged: the usual ones, and those that affect
// only the pod's namespaces. The others affect the whole machine, because there is no user namespace. For
// example, SYS_ADMIN can mount the machine's disks, SYS_PTRACE can stop the process by which this program enters
// a container, and DAC_READ_SEARCH can open any file by its handle.
const podOnly uint64 = usual | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_BROADCAST | 1<<unix.CAP_IPC_OWNER | 1<<unix.CAP_IPC_LOCK |
	1<<unix.CAP_SYS_NICE | 1<<unix.CAP_LEASE

const allOfThem = ^uint64(0)

// userOf returns the user, groups and capabilities of a container. The container's security context takes
// precedence over the pod's; without either, the user is root, as for an image that sets no user.
func (f facts) userOf(c carrier) (containerinit.User, error) {
	pod := &f.Pod
	var own corev1.SecurityContext
	if c.SecurityContext != nil {
		own = *c.SecurityContext
	}
	var shared corev1.PodSecurityContext
	if pod.Spec.SecurityContext != nil {
		shared = *pod.Spec.SecurityContext
	}
	var u containerinit.User
	if uid := either(own.RunAsUser, shared.RunAsUser); uid != nil {
		u.UID = int(*uid)
	}
	if nonRoot := either(own.RunAsNonRoot, shared.RunAsNonRoot); nonRoot != nil && *nonRoot && u.UID == 0 {
		return u, refuse(c.field+".securityContext.runAsNonRoot", "container %s would run as root", c.Name).but("set runAsUser: there is no image to take a user from")
	}
	if gid := either(own.RunAsGroup, shared.RunAsGroup); gid != nil {
		u.GID = int(*gid)
	} else if known, err := osuser.LookupId(strconv.Itoa(u.UID)); err == nil {
		u.GID, _ = strconv.Atoi(known.Gid)
	}
	u.Groups = []int{u.GID}
	for _, g := range shared.SupplementalGroups {
		u.Groups = append(u.Groups, int(g))
	}
	if shared.FSGroup != nil {
		u.Groups = append(u.Groups, int(*shared.FSGroup))
	}
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	u.NoNewOnes = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	var err error
	u.Bounds, err = bounds(c.field+".securityContext.capabilities", own)
	switch {
	case err != nil || f.AllowPrivileged:
	case privileged(c):
		err = refuse(c.field+".securityContext.privileged", "it can change this machine").but("allow it with --allow-privileged, or leave it out")
	case u.Bounds&^podOnly != 0:
		err = refuse(c.field+".securityContext.capabilities.add", "%s can change this machine", names(u.Bounds&^podOnly)).
			but("allow it with --allow-privileged, or leave it out")
	}
	return u, err
}

// names returns the names of the capabilities in a set, or ALL if there are more than five.
func names(of uint64) string {
	var out []string
	for i, name := range capabilities {
		if of&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	if len(out) > 5 {
		return "ALL"
	}
	return strings.Join(out, ", ")
}

func either[T any](own, shared *T) *T {
	if own != nil {
		return own
	}
	return shared
}

func privileged(c carrier) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// bounds returns the largest set of capabilities that a container can gain, from its security context.
func bounds(field string, s corev1.SecurityContext) (uint64, error) {
	if s.Privileged != nil && *s.Privileged {
		return allOfThem, nil
	}
	if s.Capabilities == nil {
		return usual, nil
	}
	add, err := set(field+".add", s.Capabilities.Add)
	if err != nil {
		return 0, err
	}
	drop, err := set(field+".drop", s.Capabilities.Drop)
	if err != nil {
		return 0, err
	}
	// If add or drop is ALL, the other list contains the exceptions.
	if add == allOfThem {
		return allOfThem &^ drop, nil
	}
	return usual&^drop | add, nil
}

func set(field string, names []corev1.Capability) (uint64, error) {
	var out uint64
	for _, n := range names {
		name := strings.TrimPrefix(strings.ToUpper(string(n)), "CAP_")
		i := slices.Index(capabilities, name)
		switch {
		case name == "ALL":
			out = allOfThem
		case i < 0:
			return 0, refuse(field, "%q is no capability", n).but("write it like NET_ADMIN")
		default:
			out |= 1 << i
		}
	}
	return out, nil
}
