// Package state lets the containers of a pod publish their states to one another.
//
// All containers share a volume. Each container can write only to its own directory there
// (the kubelet mounts that directory by subPath, and the whole volume read-only). The
// directory holds the container's [Record]: a file with a small JSON object, replaced by
// rename.
//
// A record counts only while its writer lives. The writer holds a write lock on the file that
// it renames into place (an open file description lock: fcntl(2), F_OFD_SETLK). The lock shows
// that the writer lives and that this is its latest record, and the kernel releases it however
// the writer ends. A process that may only read the file cannot take this lock, so it cannot
// keep the record of a dead writer alive (flock(2) would allow that). Only facts of the past
// outlive the writer: that it ended, and that it completed. Such a fact holds in one sandbox
// of the pod ([Sandbox]).
//
// A reader waits for events. It does not use inotify, whose instances are few and shared by
// all processes of a user on the node. Instead it binds a datagram socket, the bell, in its
// own directory, reads the records, and then waits for a datagram. A writer first renames its
// record into place and then sends a datagram to every bell. The death of a writer is an event
// too: a [Watch] can block on the lock of a record.
//
// The file format is private to this package: writer and readers are the same binary, which
// is copied into the pod once.
package state
