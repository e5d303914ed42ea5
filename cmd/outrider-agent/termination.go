package main

import (
	"os"
	"strings"
)

// terminationLog is the file from which the kubelet reads the reason why a container ended
// (terminationMessagePath). The kubelet creates the file; if it does not exist, nothing reads it.
type terminationLog struct{ path string }

// maxTerminationMessage is the number of bytes of a message that the kubelet keeps.
const maxTerminationMessage = 4096

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
	message = strings.ToValidUTF8(message[:min(len(message), maxTerminationMessage)], "")
	_, _ = f.WriteString(message)
}
