package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// relay is another mesh's proxy: after a delay it accepts the pod's connections on 15001 and 15006,
// forwards them to their original destinations, and reports its readiness on port 15021.
func relay(o optionSet) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	emit("started")
	time.Sleep(o.after)
	for _, address := range []string{":15001", ":15006"} {
		l, err := net.Listen("tcp4", address)
		must(err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go pass(c.(*net.TCPConn))
			}
		}()
	}
	l, err := net.Listen("tcp4", ":15021")
	must(err)
	emit("healthy")
	if o.eat > 0 {
		time.AfterFunc(o.every, func() { eat(o.eat) })
	}
	go http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	<-terminated
	time.Sleep(o.stop)
}

func pass(c *net.TCPConn) {
	defer c.Close()
	to, err := original(c)
	if err != nil {
		return
	}
	up, err := net.DialTimeout("tcp4", to, 5*time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// original returns the destination that a redirected connection had originally.
func original(c *net.TCPConn) (to string, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return "", err
	}
	var got *unix.IPv6Mreq // receives the bytes of a sockaddr_in, which has the same size
	if cerr := raw.Control(func(fd uintptr) {
		got, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
	}); cerr != nil {
		return "", cerr
	}
	if err != nil {
		return "", err
	}
	a := got.Multiaddr
	return fmt.Sprintf("%s:%d", net.IP(a[4:8]), binary.BigEndian.Uint16(a[2:4])), nil
}
