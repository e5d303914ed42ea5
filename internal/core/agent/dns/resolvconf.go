package dns

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A conf contains the settings of a resolv.conf that the proxy uses (resolv.conf(5)).
type conf struct {
	servers []netip.AddrPort
	search  []string // in lower case, without final dots
	timeout time.Duration
}

// Bounds of resolv.conf.
const (
	maxServers = 3  // glibc's limit
	maxSearch  = 32 // Kubernetes' limit
	maxConf    = 64 << 10
)

// parseConf reads a resolv.conf. As in libc, unknown or malformed lines are ignored.
func parseConf(text []byte, port uint16) conf {
	c := conf{timeout: serverTimeout}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxConf)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil && len(c.servers) < maxServers {
				c.servers = append(c.servers, netip.AddrPortFrom(a.Unmap(), port))
			}
		case "domain":
			c.search = domains(words[1:2])
		case "search":
			c.search = domains(words[1:])
		case "options":
			c.options(words[1:])
		}
	}
	return c
}

func domains(words []string) (out []string) {
	for _, w := range words[:min(len(words), maxSearch)] {
		if w = strings.ToLower(strings.Trim(w, ".")); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func (c *conf) options(words []string) {
	for _, w := range words {
		if digits, ok := strings.CutPrefix(w, "timeout:"); ok {
			if n, err := strconv.Atoi(digits); err == nil && n > 0 {
				c.timeout = min(time.Duration(min(n, 30))*time.Second, serverTimeout)
			}
		}
	}
}

// A confFile is a resolv.conf that is read again when it changes.
type confFile struct {
	path string
	port uint16
	own  func(netip.AddrPort) bool // reports whether an address is the proxy's own; such servers are left out
	// changed is called when the file has changed.
	changed func()

	mu      sync.Mutex
	checked time.Time
	stamp   os.FileInfo
	current conf
}

// checkEvery is the time between checks whether the file has changed.
const checkEvery = time.Second

// get returns the file's settings, or the previous ones while it cannot be read.
func (f *confFile) get() conf {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.checked.IsZero() && now.Sub(f.checked) < checkEvery {
		return f.current
	}
	f.checked = now
	info, err := os.Stat(f.path)
	if err != nil || f.stamp != nil && os.SameFile(info, f.stamp) && info.ModTime().Equal(f.stamp.ModTime()) && info.Size() == f.stamp.Size() {
		return f.current
	}
	text, err := readBounded(f.path)
	if err != nil {
		return f.current
	}
	first := f.stamp == nil
	f.stamp, f.current = info, parseConf(text, f.port)
	f.current.servers = slices.DeleteFunc(f.current.servers, f.own) // else the proxy would query itself
	if !first {
		f.changed()
	}
	return f.current
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConf))
}
