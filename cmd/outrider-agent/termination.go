package main

import (
	"os"
	"strings"
)

// terminationLog is where the kubelet reads why a container ended
// (terminationMessagePath). It makes the file; if it does not exist, it is not read.
type terminationLog struct{ path string }

// maxTerminationMessage is what the kubelet keeps of a message.
const maxTerminationMessage = 4096

func defaultTerminationLog() string {
	if path := os.Getenv("OUTRIDER_TERMINATION_LOG"); path != "" {
		return path
	}
	return "/dev/termination-log"
}

// write leaves message there. It has been printed already, so an error here is dropped.
func (t *terminationLog) write(message string) {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	defer f.Close()
	message = strings.ToValidUTF8(message[:min(len(message), maxTerminationMessage)], "")
	_, _ = f.WriteString(message)
}
