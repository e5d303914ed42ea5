package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/base/contract"
)

// Volumes lists the names of the volumes for gates, which [Write] adds.
var Volumes = []string{BinVolume, StateVolume}

// Size limits of the volumes, which are in memory. Without a limit a process that writes there could use up the
// memory of its container or of the node. With a limit such a write fails, and the kubelet evicts a pod that
// exceeds it.
var (
	// binLimit has space for the agent (11 MB) and for a new version that is copied next to it.
	binLimit = resource.MustParse("64Mi")
	// stateLimit has space for the states of 300 containers. They need 5 MB: two files of a few kB each.
	stateLimit = resource.MustParse("16Mi")
)

// Memory returns a volume in memory with that size limit.
func Memory(limit resource.Quantity) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}}
}

// A TakenError reports that the pod already uses a volume name or a directory that the gates need.
type TakenError struct {
	Volume    string // the pod's own volume
	Container string // container that mounts the volume there; empty if the conflict is the volume's name
	Mount     string // path of the mount
}

func (e *TakenError) Error() string {
	if e.Container == "" {
		return "the pod has its own volume " + e.Volume + ", and by that name the gates have theirs"
	}
	return e.Container + " mounts its volume " + e.Volume + " at " + e.Mount + ", and all of " + contract.Dir + " is the gates'"
}

// share mounts the agent's program and the directories of states into c.
func (w *writer) share(c *corev1.Container) error {
	if err := w.shareAgent(c); err != nil {
		return err
	}
	return w.shareStates(c)
}

// shareAgent mounts the agent's program into c.
func (w *writer) shareAgent(c *corev1.Container) error {
	if w.node {
		return w.byNode(c, nil)
	}
	m := corev1.VolumeMount{Name: BinVolume, MountPath: BinDir, ReadOnly: true}
	if w.volume != nil {
		m.SubPath = contract.ImageBinDir
	}
	return mount(c, m)
}

// readStates mounts the states of all containers into c, read-only.
func (w *writer) readStates(c *corev1.Container) error {
	if w.node {
		return w.byNode(c, nil)
	}
	return mount(c, corev1.VolumeMount{Name: StateVolume, MountPath: contract.StatesDir, ReadOnly: true})
}

// shareStates is readStates with a writable directory for the state of c.
func (w *writer) shareStates(c *corev1.Container) error {
	if err := w.readStates(c); err != nil || w.node {
		return err
	}
	return mount(c, corev1.VolumeMount{Name: StateVolume, MountPath: contract.OwnDir, SubPath: c.Name})
}

// mount adds a mount of one of our volumes to c, unless c has it. It fails if another mount overlaps our
// directory, because one of the two would hide the other.
func mount(c *corev1.Container, m corev1.VolumeMount) error {
	if err := checkDir(c); err != nil {
		return err
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }) {
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
	return nil
}

// ours reports whether m is a mount that [Write] adds to c.
func ours(c *corev1.Container, m corev1.VolumeMount) bool {
	return slices.Contains([][3]string{
		{BinVolume, BinDir, ""}, {BinVolume, BinDir, contract.ImageBinDir}, {StateVolume, contract.StatesDir, ""}, {StateVolume, contract.OwnDir, c.Name},
	}, [3]string{m.Name, m.MountPath, m.SubPath + m.SubPathExpr})
}

// checkDir returns a [*TakenError] if c has a mount, other than ours, that overlaps our directory.
func checkDir(c *corev1.Container) error {
	for _, o := range c.VolumeMounts {
		if !ours(c, o) && contract.Overlap(o.MountPath, contract.Dir) {
			return &TakenError{o.Name, c.Name, o.MountPath}
		}
	}
	return nil
}

// byNode adds c to the work of the node, which then mounts the agent and the states into c. If gate is not empty,
// the node also adds a gate with these arguments.
func (w *writer) byNode(c *corev1.Container, gate []string) error {
	if w.work.Containers == nil {
		w.work.Containers = map[string][]string{}
	}
	if _, there := w.work.Containers[c.Name]; !there || len(gate) > 0 {
		w.work.Containers[c.Name] = gate
	}
	return checkDir(c)
}

// addGateVolumes adds the volumes that the gates share. It fails if the pod has another volume with such a name,
// for example one on a disk that other pods share. A node uses its own directories instead of volumes.
func (w *writer) addGateVolumes() error {
	if w.node {
		return nil
	}
	limits := map[string]resource.Quantity{BinVolume: binLimit, StateVolume: stateLimit}
	for _, name := range Volumes {
		i := slices.IndexFunc(w.out.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		byImage := name == BinVolume && w.volume != nil
		if i < 0 {
			source := Memory(limits[name])
			if byImage {
				source = corev1.VolumeSource{Image: w.volume}
			}
			w.out.Spec.Volumes = append(w.out.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
			continue
		}
		if byImage {
			if own := w.out.Spec.Volumes[i].Image; own == nil || *own != *w.volume { // else an earlier call has added it
				return &TakenError{Volume: name}
			}
			continue
		}
		if e := w.out.Spec.Volumes[i].EmptyDir; e == nil || e.Medium != corev1.StorageMediumMemory {
			return &TakenError{Volume: name}
		}
	}
	return w.addInit()
}

// addInit adds the init container that copies the agent. It is the first one, so that the gates of other init
// containers find the agent. It is not added if the proxy's root stage copies the agent or an image volume
// contains it.
func (w *writer) addInit() error {
	if w.volume != nil || slices.ContainsFunc(w.out.Spec.Containers, func(c corev1.Container) bool { return Staged(&c) }) {
		return nil
	}
	i := slices.IndexFunc(w.out.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == contract.InitContainer })
	if i < 0 {
		c := corev1.Container{Name: contract.InitContainer, Image: w.image, Command: []string{"outrider-agent", "copy", AgentPath}}
		w.out.Spec.InitContainers = slices.Insert(w.out.Spec.InitContainers, 0, c)
		i = 0
	}
	return mount(&w.out.Spec.InitContainers[i], corev1.VolumeMount{Name: BinVolume, MountPath: BinDir})
}
