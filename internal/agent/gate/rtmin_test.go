//go:build amd64 || arm64

package gate

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// SIGRTMIN comes as often as it was sent, to threads that compute, allocate and are preempted.
func TestSIGRTMINIsNotLost(t *testing.T) {
	const times = 2000
	came, err := catchRTMin()
	check(t, err)
	over := make(chan struct{})
	defer close(over)
	for range 4 {
		go func() {
			for held := make([][]byte, 100); ; {
				for i := range held {
					held[i] = make([]byte, 1000*i)
				}
				select {
				case <-over:
					return
				default:
				}
			}
		}()
	}
	for range times {
		check(t, syscall.Kill(os.Getpid(), rtmin))
	}
	check(t, came.SetReadDeadline(time.Now().Add(bad)))
	if n, err := io.ReadFull(came, make([]byte, times)); err != nil {
		t.Errorf("signal %d came %d times, want %d: %v", rtmin, n, times, err)
	}
}
