package gate

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// playHTTP is a proxy that says on ADDRESS that it is ready, after a time.
func playHTTP(args []string) int {
	after, err := time.ParseDuration(args[1])
	must(err)
	l, err := net.Listen("tcp", args[0])
	must(err)
	ready := time.Now().Add(after)
	must(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(ready) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})))
	return 0
}

// playHog takes all inotify instances of its user.
func playHog([]string) int {
	n := 0
	for {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			break
		}
		n++
	}
	fmt.Println(n)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}
