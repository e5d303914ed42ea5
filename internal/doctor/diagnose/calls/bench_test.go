package calls

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/doctor/evidence/gather"
)

// mixed has the formats of a realistic log: Java, JSON, an access log, klog, and now and then a warning, an error with
// its stack trace, and a connection that worked.
var mixed = []string{
	"%[1]s INFO  [http-nio-8080-exec-1] shop.orders.OrderService - order %[2]d accepted for customer %[2]d in 12 ms\n",
	"%[1]s DEBUG [http-nio-8080-exec-3] shop.orders.PriceClient - prices of order %[2]d: 12 lines, total 199.90 EUR, took 3 ms\n",
	"%[1]s INFO  [http-nio-8080-exec-2] shop.web.Access - 10.1.0.9 \"GET /orders/%[2]d?expand=lines HTTP/1.1\" 200 1834 \"curl/8.5.0\" 0.012\n",
	`{"level":"info","ts":"%[1]s","caller":"orders/service.go:111","msg":"order accepted","order":%[2]d,"customer":"c-%[2]d","took":"12ms"}` + "\n",
	"%[1]s INFO  [kafka-producer-network-thread] o.a.k.clients.NetworkClient - Node 1 has been seen at offset %[2]d of partition orders-4\n",
}

var rare = []string{
	"%[1]s WARN  [http-nio-8080-exec-1] shop.orders.OrderService - order %[2]d: slow query took 1201 ms\n",
	"%[1]s INFO  [main] shop.Db - Connected to db:5432\n",
	"%[1]s ERROR [http-nio-8080-exec-1] shop.orders.PriceClient - no prices for order %[2]d: http://prices.shop:8080/v1\njava.net.ConnectException: Connection refused\n" + strings.Repeat("\tat java.base/sun.nio.ch.Net.connect0(Native Method)\n", 20),
}

const benchPod = `{"kind":"Pod","metadata":{"name":"shop"},"spec":{"containers":[{"name":"app"}]},
"status":{"containerStatuses":[{"name":"app","restartCount":0,"state":{"running":{"startedAt":"2026-11-24T03:18:19Z"}}}]}}`

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScanCalls reads a log of 256 MB for everything that a diagnosis looks for in it. It reports seconds of the
// processor for a GB, for this and for a plain loop over the lines (bufio.Reader.ReadSlice) of the same file, the ratio
// of both, and the memory that the process had from the system at most.
func BenchmarkScanCalls(b *testing.B) {
	dir := b.TempDir()
	file, size := filepath.Join(dir, "app.log"), 0
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	out, at := bufio.NewWriter(f), time.Date(2026, 11, 24, 3, 18, 20, 0, time.UTC)
	for i := 0; size < 256_000_000; i++ {
		line := mixed[i%len(mixed)]
		if i%5_000 == 4_999 {
			line = rare[i/5_000%len(rare)]
		}
		n, err := fmt.Fprintf(out, line, at.Add(time.Duration(i)*time.Millisecond).Format("2006-01-02 15:04:05,000"), i)
		if size += n; err != nil {
			b.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		b.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(filepath.Join(dir, "pod.json"), []byte(benchPod), 0o600); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	var plain, ours time.Duration
	b.SetBytes(int64(size))
	n := 0
	for b.Loop() {
		n++
		from := cpu(b)
		f, err := os.Open(file)
		if err != nil {
			b.Fatal(err)
		}
		in := bufio.NewReaderSize(f, 64<<10)
		for err == nil {
			_, err = in.ReadSlice('\n')
		}
		f.Close()
		between := cpu(b)
		set, err := gather.Read(b.Context(), gather.Options{}, dir)
		if err != nil {
			b.Fatal(err)
		}
		read, err := Read(b.Context(), set.Pods[0], nil, false)
		if err != nil || len(read.Calls) == 0 {
			b.Fatal(err, len(read.Calls))
		}
		plain += between - from
		ours += cpu(b) - between
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	gb := float64(n) * float64(size) / 1e9
	b.ReportMetric(ours.Seconds()/gb, "cpu-s/GB")
	b.ReportMetric(plain.Seconds()/gb, "plain-cpu-s/GB")
	b.ReportMetric(ours.Seconds()/plain.Seconds(), "ratio")
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-sys")
}
