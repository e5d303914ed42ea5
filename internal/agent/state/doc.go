// Package state is how the containers of a pod tell one another how far they are.
//
// Each container has a directory of its own in a volume that all of them share, and can
// write nowhere else (the kubelet mounts it by subPath, and the whole volume read-only
// beside it). In it stands one file, its [Record]: a small JSON object, replaced by rename.
//
// A record counts only while its writer lives. The writer holds a write lock on the very
// file that it renames into place (an open file description lock: fcntl(2), F_OFD_SETLK),
// so the lock says who is alive and that this is its last word, and the kernel takes it
// away however the writer ends. Who may only read the file cannot take such a lock, so
// nobody can keep the word of a dead writer alive (flock(2) would let them). Only what is
// a fact of the past outlives its writer: that it ended, and that it completed. Such a
// fact belongs to one sandbox of the pod ([Sandbox]).
//
// Who waits is told by event, without inotify, whose instances are few and shared by all
// processes of a user on the node: it binds a datagram socket in its own directory, the
// [Bell], reads, and then waits; who publishes renames first and then rings all bells. A
// death is an event too: a [Watch] can block on the lock of a record.
//
// The file format is for this package's eyes: writer and readers are one binary, which a
// pod copies once.
package state
