// Package containerinit is what a process becomes that package localpod started: the first process of a
// node, a container, or a command in one. The program that runs pods starts itself again, as container
// runtimes do, with a role in argv[0] and an [Order] in a pipe; [Become] makes the file system, takes the
// user and its capabilities, and executes the command.
//
// It promises that the command sees what its order says and nothing more, or does not run: the [Answer]
// has the reason then. A container's file system is this machine's, copy on write.
//
// Where to read:
//
//	order.go        what a new process becomes
//	init.go         and how it becomes that
//	rootfs.go       its file system; kernel.go: /dev, /proc and /sys
//	credentials.go  its user
package containerinit
