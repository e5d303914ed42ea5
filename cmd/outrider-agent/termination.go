package main

import (
	"os"

	"outrider.dev/internal/core/agent/supervise"
)

// terminationLog is the file from which the kubelet reads the reason why a container ended
// (terminationMessagePath). The kubelet creates the file; if it does not exist, nothing reads it.
type terminationLog struct{ path string }

func defaultTerminationLog() string {
	if path := os.Getenv("OUTRIDER_TERMINATION_LOG"); path != "" {
		return path
	}
	return "/dev/termination-log"
}

// write writes message to the file. It ignores errors, because the message has been printed already.
func (t *terminationLog) write(message string) {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(supervise.Message(message, nil))
}
