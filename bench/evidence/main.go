// Command evidence measures how a large log is read: it makes a pod with a log of a gigabyte, looks
// for patterns in it as a diagnosis does, and prints MB/s and how much memory the process had at
// most. No figure makes it fail.
//
//	go run ./bench/evidence -mb 1024
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/internal/evidence"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process.
func run(args []string, stdout, stderr io.Writer) int {
	fs := figures.Flags("evidence", stderr)
	mb := fs.Int("mb", 1024, "size of the log, in MB")
	dir := fs.String("dir", "", "where it is made (default: the system's folder for temporary files)")
	return figures.Run(fs, args, func() error {
		if err := figures.Positive(fs, "mb"); err != nil {
			return err
		}
		return measure(*mb, *dir, stdout)
	})
}

const pod = `{"kind":"Pod","metadata":{"name":"shop"},"spec":{"containers":[{"name":"app"}]},
"status":{"containerStatuses":[{"name":"app","restartCount":0,"state":{"running":{"startedAt":"2026-11-24T03:18:19Z"}}}]}}`

// forms are how the runtimes write a line.
var forms = []struct {
	name string
	line func(at time.Time, i int) string
}{
	{"Java", func(at time.Time, i int) string {
		return at.Format("2006-01-02 15:04:05,000") + fmt.Sprintf(" INFO  [http-nio-8080-exec-%d] shop.orders.OrderService - order %d accepted for customer %d in 12 ms\n", i%20, i, i%977)
	}},
	{"JSON", func(at time.Time, i int) string {
		return fmt.Sprintf(`{"level":30,"time":%d,"pid":1,"hostname":"shop-7d9","msg":"order %d accepted for customer %d in 12 ms"}`+"\n", at.UnixMilli(), i, i%977)
	}},
	{"no times", func(_ time.Time, i int) string {
		return fmt.Sprintf("order %d accepted for customer %d in 12 ms, sent on to the warehouse and to the ledger\n", i, i%977)
	}},
}

func measure(mb int, dir string, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%-10s %8s %10s %8s %16s %8s\n", "log", "MB", "lines", "MB/s", "MB/s of CPU time", "hits")
	for _, f := range forms {
		if err := one(mb, dir, f.name, f.line, stdout); err != nil {
			return err
		}
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nresident memory at most: %s (%s, %d processors)\n", peak, runtime.Version(), runtime.NumCPU())
	return nil
}

func one(mb int, dir, name string, line func(time.Time, int) string, stdout io.Writer) (err error) {
	dir, err = os.MkdirTemp(dir, "bench-evidence-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := generate(filepath.Join(dir, "app.log"), int64(mb)*1_000_000, line); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "pod.json"), []byte(pod), 0o600); err != nil {
		return err
	}
	ctx := context.Background()
	began, cpu := time.Now(), cpuTime()
	set, err := evidence.Read(ctx, evidence.Options{}, dir)
	if err != nil {
		return err
	}
	found, err := set.Pods[0].Container("app").Logs[0].Scan(ctx, patterns(), evidence.ScanOptions{})
	if err != nil {
		return err
	}
	hits := 0
	for _, n := range found.Total { // any order: a sum
		hits += n
	}
	fmt.Fprintf(stdout, "%-10s %8d %10d %8.0f %16.0f %8d\n", name, found.Bytes/1_000_000, found.Lines,
		float64(found.Bytes)/1e6/time.Since(began).Seconds(), float64(found.Bytes)/1e6/(cpuTime()-cpu).Seconds(), hits)
	return nil
}

// generate writes a log with a failure, as Java reports it, every 10,000 lines.
func generate(file string, size int64, line func(time.Time, int) string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	at := time.Date(2026, 11, 24, 3, 18, 20, 0, time.UTC)
	for i, written := 0, int64(0); written < size; i++ {
		text := line(at.Add(time.Duration(i)*time.Millisecond), i)
		if i%10_000 == 9_999 {
			text += "java.net.ConnectException: Connection refused\n" + strings.Repeat("\tat java.base/sun.nio.ch.Net.connect0(Native Method)\n", 20)
		}
		if _, err := w.WriteString(text); err != nil {
			return errors.Join(err, f.Close())
		}
		written += int64(len(text))
	}
	return errors.Join(w.Flush(), f.Close())
}

// patterns are as many as a diagnosis has.
func patterns() (out []evidence.Pattern) {
	for _, p := range []string{"connection refused", "ECONNREFUSED", "no route to host", "network is unreachable", "connection reset", "ECONNRESET", "i/o timeout", "ETIMEDOUT", "no such host", "ENOTFOUND",
		"UnknownHostException", "temporary failure in name resolution", "getaddrinfo", "OutOfMemoryError", "panic: ", "Traceback (most recent call last)", "SIGTERM", "upstream connect error", "no healthy upstream",
		"TLS handshake", "certificate verify failed", "x509: ", "NACK", "gRPC config", "failed to bind", "address already in use", "permission denied", "segmentation fault", "Can't read configMap", "envoy proxy is ready"} {
		out = append(out, evidence.Pattern{Name: p, Any: []string{p}})
	}
	return out
}

// cpuTime is what this process has used, which other processes change less than the time that passed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory is VmHWM of this process.
func peakMemory() (string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", errors.New("/proc/self/status has no VmHWM")
}
