package gather

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/evidence"
)

// BenchmarkScan scans a log of 64 MB in the formats that programs use, with a failure every 10,000 lines.
func BenchmarkScan(b *testing.B) {
	const pod = `{"kind":"Pod","metadata":{"name":"shop"},"spec":{"containers":[{"name":"app"}]},
"status":{"containerStatuses":[{"name":"app","restartCount":0,"state":{"running":{"startedAt":"2026-11-24T03:18:19Z"}}}]}}`
	failure := "java.net.ConnectException: Connection refused\n" + strings.Repeat("\tat java.base/sun.nio.ch.Net.connect0(Native Method)\n", 20)
	patterns := make([]evidence.Pattern, 30) // as many as a diagnosis uses
	for i := range patterns {
		patterns[i] = evidence.Pattern{Name: fmt.Sprint(i), Any: []string{fmt.Sprintf("no such text %d", i)}}
	}
	patterns[0].Any = []string{"connection refused"}
	for name, line := range map[string]string{
		"Java":     "%[1]s INFO  [http-nio-8080-exec-1] shop.orders.OrderService - order %[2]d accepted for customer %[2]d in 12 ms\n",
		"JSON":     `{"level":30,"time":"%[1]s","pid":1,"hostname":"shop-7d9","msg":"order %[2]d accepted for customer %[2]d in 12 ms"}` + "\n",
		"no times": "%.0[1]sorder %[2]d accepted for customer %[2]d in 12 ms, sent on to the warehouse and to the ledger\n",
	} {
		b.Run(name, func(b *testing.B) {
			var log bytes.Buffer
			at := time.Date(2026, 11, 24, 3, 18, 20, 0, time.UTC)
			for i := 0; log.Len() < 64_000_000; i++ {
				if fmt.Fprintf(&log, line, at.Add(time.Duration(i)*time.Millisecond).Format("2006-01-02 15:04:05,000"), i); i%10_000 == 9_999 {
					log.WriteString(failure)
				}
			}
			dir := b.TempDir()
			for file, data := range map[string][]byte{"app.log": log.Bytes(), "pod.json": []byte(pod)} {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(log.Len()))
			for b.Loop() {
				set, err := Read(b.Context(), Options{}, dir)
				if err != nil {
					b.Fatal(err)
				}
				found, _, err := set.Pods[0].Container("app").Logs[0].Scan(b.Context(), patterns)
				if err != nil || len(found) == 0 {
					b.Fatal(err, len(found))
				}
			}
		})
	}
}
