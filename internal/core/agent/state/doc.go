// Package state is how the containers of a pod publish their states to one another.
//
// Each container has a directory of its own in a volume that all of them share, and can
// write nowhere else (the kubelet mounts it by subPath, and the whole volume read-only
// beside it). In it stands one file, its [Record]: a small JSON object, replaced by rename.
//
// A record counts only while its writer lives. The writer holds a write lock on the very
// file that it renames into place (an open file description lock: fcntl(2), F_OFD_SETLK),
// so the lock shows that the writer lives and that this is its latest record, and the kernel
// releases it however the writer ends. A process that may only read the file cannot take such
// a lock, so it cannot keep the record of a dead writer alive (flock(2) would allow that).
// Only facts of the past outlive the writer: that it ended, and that it completed. Such a
// fact belongs to one sandbox of the pod ([Sandbox]).
//
// A reader waits for events, without inotify, whose instances are few and shared by all
// processes of a user on the node: it binds a datagram socket in its own directory, the
// bell, reads, and then waits; a writer renames first and then rings all bells. A death
// is an event too: a [Watch] can block on the lock of a record.
//
// The file format is private to this package: writer and readers are one binary, which a
// pod copies once.
package state
