package dns

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A conf is what a resolv.conf says that matters here (resolv.conf(5)).
type conf struct {
	servers []netip.AddrPort
	search  []string // in lower case, without dots at their ends
	timeout time.Duration
}

// Bounds of resolv.conf. The kernel of a name is short; glibc reads no more servers.
const (
	maxServers = 3
	maxSearch  = 32 // Kubernetes' own
	maxConf    = 64 << 10
)

// parseConf reads a resolv.conf. As in libc what is not understood is passed over.
func parseConf(text []byte, port uint16) conf {
	c := conf{timeout: one}
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
				c.timeout = min(time.Duration(min(n, 30))*time.Second, one)
			}
		}
	}
}

// A confFile is a resolv.conf that is read again when it changes.
type confFile struct {
	path string
	port uint16
	own  func(netip.AddrPort) bool // to leave out: the proxy itself
	// changed is called, if it is set, when the file says something else.
	changed func()

	mu      sync.Mutex
	looked  time.Time
	stamp   os.FileInfo
	current conf
}

// look is how long what was read is used without a look at the file.
const look = time.Second

// get returns what the file says. While it cannot be read what it said before stays.
func (f *confFile) get() conf {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.looked.IsZero() && now.Sub(f.looked) < look {
		return f.current
	}
	f.looked = now
	info, err := os.Stat(f.path)
	if err != nil || f.stamp != nil && os.SameFile(info, f.stamp) && info.ModTime().Equal(f.stamp.ModTime()) && info.Size() == f.stamp.Size() {
		return f.current
	}
	text, err := readSome(f.path)
	if err != nil {
		return f.current
	}
	first := f.stamp == nil
	f.stamp, f.current = info, f.without(parseConf(text, f.port))
	if !first && f.changed != nil {
		f.changed()
	}
	return f.current
}

// without leaves the proxy itself out: it would query itself for ever.
func (f *confFile) without(c conf) conf {
	kept := c.servers[:0]
	for _, s := range c.servers {
		if f.own == nil || !f.own(s) {
			kept = append(kept, s)
		}
	}
	c.servers = kept
	return c
}

func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConf))
}
