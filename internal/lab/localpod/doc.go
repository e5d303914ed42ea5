// Package localpod runs the containers of a pod as processes of this machine, by the kubelet's rules: package
// kubelet, a model of the kubelet, decides what to do, and localpod does it with real hooks, probes, signals and
// restarts.
//
//	node, err := localpod.NewNode(localpod.NodeOptions{})
//	pod, err := node.Start(localpod.Options{Pod: manifest})
//	result := pod.Wait()
//
// There are no images. A container's file system is this machine's, copy on write,
// so its command must be in the pod spec and on this machine.
//
// A [Node] is a private machine for several pods: a bridge, and for each pod a network namespace with an address.
// The processes of its pods see only each other and the node's mounts. All of them end when the program that made
// the node ends, even if that is killed.
//
// Where to read:
//
//	options.go      what is run, and what is refused
//	spec.go         the command, mounts and files of a container, from the pod spec
//	env.go          the environment of a container, and $(NAME)
//	fields.go       the downward API: fields of the pod for its containers
//	user.go         the user, groups and capabilities of a container
//	volume.go       the content of its volumes
//	node.go         the private machine
//	network.go      the bridge and the addresses of a node
//	sandbox.go      what the containers of one pod share
//	container.go    a running container: start, signal, exec
//	pod.go          the loop that passes events to the model of the kubelet and starts its actions
//	act.go          how each action is carried out
//	health.go       which containers are healthy, as far as the kubelet can see
//	gates.go        the reports of gates about the commands that they start
//	result.go       the result and the journal of a pod
//	thread.go       how a thread enters a namespace
//
// Package containerinit sets up the processes of a pod before they execute their commands. A program that runs
// pods must call containerinit.Become at the beginning of main. Package probe makes the requests of hooks and
// probes.
//
// Not supported: images, limits of CPU and memory, seccomp, AppArmor and SELinux, user namespaces, host network,
// a process namespace shared between containers, service accounts except a given token, and whatever package
// kubelet does not model.
package localpod
