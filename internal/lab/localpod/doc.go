// Package localpod runs the containers of a pod as processes of this machine, by the
// kubelet's rules: package kubelet decides, and localpod carries out its actions with
// real hooks, probes, signals and restarts.
//
//	node, err := localpod.NewNode(localpod.NodeOptions{})
//	pod, err := node.Start(localpod.Options{Pod: manifest})
//	result := pod.Wait()
//
// There are no images. A container's file system is this machine's, copy on write,
// so its command must be in the pod spec and on this machine.
//
// A [Node] is a private machine for several pods: a bridge, and for each pod a
// network namespace with an address. Its processes see only each other and the node's
// mounts, and all of them end with the program that made the node, however it ends.
//
// Where to read:
//
//	options.go      what is run, and what is refused
//	spec.go         a container of the pod as a process and its mounts
//	env.go          its environment, and $(NAME)
//	fields.go       the downward API: fields of the pod for its containers
//	user.go         its user, groups and capabilities
//	volume.go       the content of its volumes
//	node.go         the private machine
//	network.go      its bridge and addresses
//	sandbox.go      what the containers of one pod share
//	container.go    a running container: start, signal, exec
//	pod.go          the loop: events in, actions out
//	act.go          how each action is carried out
//	health.go       which containers are healthy, as far as the kubelet can see
//	gates.go        what gates report about the commands behind them
//	result.go       the result
//	thread.go       how a thread enters a namespace
//
// Package containerinit sets up the processes of a pod before they execute their commands. The main
// of a program that runs pods begins with its Become. Package probe makes the requests of hooks and probes.
//
// Left out: images, limits of CPU and memory, seccomp, AppArmor and SELinux, user
// namespaces, host network, processes shared between containers, service accounts
// except a given token, and what package kubelet leaves out.
package localpod
