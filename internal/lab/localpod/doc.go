// Package localpod runs the containers of a pod as processes of this machine, by the
// kubelet's rules: package kubelet decides, and what it decides is done here, with
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
// network namespace with an address. What runs on it sees its own processes and
// mounts only, and all of it ends with the program that made it, however that ends.
//
// Where to read:
//
//	options.go      what is run, and what is refused
//	spec.go         a container of the pod as a process and its mounts
//	env.go          its environment, and $(NAME)
//	fields.go       the downward API: fields of the pod for its containers
//	user.go         its user, groups and capabilities
//	volume.go       what is in its volumes
//	node.go         the private machine
//	network.go      its bridge and addresses
//	sandbox.go      what the containers of one pod share
//	container.go    a container that runs: start, signal, exec
//	pod.go          the loop: events in, actions out
//	act.go          how each action is done
//	health.go       which containers are healthy, as far as the kubelet can see
//	gates.go        what gates report about the commands behind them
//	result.go       what comes out
//	thread.go       how a thread of ours gets into a namespace
//
// Package containerinit is what the processes of a pod do before they are their commands. The main
// of a program that runs pods begins with its Become. Package probe makes the requests of hooks and probes.
//
// Left out: images, limits of CPU and memory, seccomp, AppArmor and SELinux, user
// namespaces, host network, processes shared between containers, service accounts
// other than a token that is given, and what package kubelet leaves out.
package localpod
