//go:build !amd64 && !arm64

package gate

import "os"

// Without a handler for this processor, SIGRTMIN is lost (rtmin.go).
func init() { kept = append(kept, 34) }

func notifyRTMin(chan<- os.Signal) error { return nil }
