// Package containerinit is the code that a process started by package localpod runs first: as the first
// process of a node or container, or as a command within a container. The program that runs pods starts
// itself again, as container runtimes do, with a role in argv[0] and an [Order] in a pipe. [Become] then
// sets up the file system, changes to the user and its capabilities, and executes the command.
//
// Either the command runs in exactly the environment that the order describes, or it does not run and the
// [Answer] contains the reason. A container's file system is this machine's, copy on write.
//
// Where to read:
//
//	order.go        the order for a new process
//	init.go         the roles of a process, and the steps of each
//	rootfs.go       the file system of a container; kernel.go: /dev, /proc and /sys
//	credentials.go  the user and capabilities of the command
package containerinit
