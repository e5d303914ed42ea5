package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/bench/internal/figures"
)

// A machine is where, and when, the figures were taken.
type machine struct {
	Kernel     string `json:"kernel"`
	Processors int    `json:"processors"`
	NFT        string `json:"nft"`
	AgentBytes int64  `json:"agent_bytes"`
	LoadBegin  string `json:"load_begin"` // averages of 1, 5 and 15 minutes
	LoadEnd    string `json:"load_end"`
}

func describe(agent string) (machine, error) {
	m := machine{Processors: runtime.NumCPU(), LoadBegin: figures.Load()}
	info, err := os.Stat(agent)
	if err != nil {
		return m, err
	}
	m.AgentBytes = info.Size()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("asking for the kernel's version: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(u.Release[:])
	m.NFT = "no nft here"
	if out, err := exec.Command("nft", "--version").Output(); err == nil {
		m.NFT = strings.TrimSpace(string(out))
	}
	return m, nil
}
