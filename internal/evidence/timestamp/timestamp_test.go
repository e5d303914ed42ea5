package timestamp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// text is a stamp in one line, as far as it is known.
func text(s Stamp) string {
	layout := "2006-01-02T15:04:05.999999999"
	switch {
	case s.NoDate:
		layout = "15:04:05.999999999"
	case s.NoYear:
		layout = "01-02T15:04:05.999999999"
	}
	out := s.Wall.Format(layout)
	if s.Zoned {
		out += "Z"
	}
	return fmt.Sprintf("%s %s %s", s.Form, out, s.Resolution)
}

// Those marked "recorded" are of the runtimes themselves; the others of their documentation.
func TestFind(t *testing.T) {
	const ms, µs = "2026-11-24T03:18:19.48", "2026-11-24T03:18:19.480123"
	for name, tt := range map[string]struct{ line, want string }{
		"java.util.logging, recorded":            {"Nov 24, 2026 12:08:25 PM J main", "named 2026-11-24T12:08:25 1s"},
		"java.util.logging of Java 20 and later": {"Nov 24, 2026 3:18:19\u202fAM com.shop.Main start", "named 2026-11-24T03:18:19 1s"},
		"java.util.Date, recorded":               {"Tue Nov 24 03:18:19 UTC 2026 date", "named 2026-11-24T03:18:19Z 1s"},
		"logback's default":                      {"03:18:19.480 [main] INFO shop.Main -- x", "clock 03:18:19.48 1ms"},
		"logback with a date":                    {"2026-11-24 03:18:19,480 INFO [main] x", "iso " + ms + " 1ms"},
		"logback without a date":                 {"11:18:19.480+0800 [main] WARN x", "clock 03:18:19.48Z 1ms"},
		"log4j 1":                                {"2026-11-24 03:18:19,480 [main] ERROR x", "iso " + ms + " 1ms"},
		"log4j 2, level first":                   {"ERROR 2026-11-24T03:18:19,480 main x", "iso " + ms + " 1ms"},
		"log4j 2 in JSON":                        {`{"instant":{"epochSecond":1795490299,"nanoOfSecond":480123000},"thread":"main"}`, "json " + µs + "Z 1ns"},
		"log4j 2 with timeMillis":                {`{"thread":"main","timeMillis":1795490299480}`, "json " + ms + "Z 1ms"},
		"Spring Boot 2":                          {"2026-11-24 03:18:19.480  INFO 1 --- [           main] x", "iso " + ms + " 1ms"},
		"Spring Boot 3":                          {"2026-11-24T11:18:19.480+08:00  INFO 1 --- [main] x", "iso " + ms + "Z 1ms"},
		"an offset without a colon":              {"2026-11-24 11:18:19.480+0800 WARN 1 --- [main] x", "iso " + ms + "Z 1ms"},
		"logstash's encoder":                     {`{"@timestamp":"2026-11-24T11:18:19.480+08:00","@version":"1","message":"x"}`, "json " + ms + "Z 1ms"},
		"Tomcat":                                 {"24-Nov-2026 03:18:19.480 INFO [main] org.apache.catalina.x", "named " + ms + " 1ms"},
		"JBoss":                                  {"\x1b[0m03:18:19,480 INFO  [org.jboss.as] (main) x", "clock 03:18:19.48 1ms"},
		"Go log":                                 {"2026/11/24 03:18:19 listening", "iso 2026-11-24T03:18:19 1s"},
		"Go log, microseconds":                   {"2026/11/24 03:18:19.480123 main.go:7: x", "iso " + µs + " 1µs"},
		"slog, text":                             {`time=2026-11-24T03:18:19.480Z level=INFO msg=x`, "iso " + ms + "Z 1ms"},
		"slog, JSON":                             {`{"time":"2026-11-24T11:18:19.480123456+08:00","level":"INFO","msg":"x"}`, "json 2026-11-24T03:18:19.480123456Z 1ns"},
		"logrus":                                 {`time="2026-11-24T03:18:19Z" level=info msg=x`, "iso 2026-11-24T03:18:19Z 1s"},
		"zerolog":                                {`{"level":"info","time":1795490299,"message":"x"}`, "json 2026-11-24T03:18:19Z 1s"},
		"zap":                                    {`{"level":"info","ts":1795490299.480123,"caller":"x"}`, "json " + µs + "Z 1µs"},
		"zap's console":                          {"2026-11-24T03:18:19.480Z\tINFO\tx", "iso " + ms + "Z 1ms"},
		"klog":                                   {"I1124 03:18:19.480123       1 main.go:1] x", "klog 11-24T03:18:19.480123 1µs"},
		"klog in JSON":                           {`{"ts":1795490299480.123,"caller":"x","msg":"x"}`, "json " + µs + "Z 1µs"},
		"glog 0.6 and later":                     {"W20261124 03:18:19.480123     1 x.cc:1] x", "klog " + µs + " 1µs"},
		"pino":                                   {`{"level":30,"time":1795490299480,"pid":1,"msg":"x"}`, "json " + ms + "Z 1ms"},
		"winston":                                {`{"level":"info","message":"at 10:00","timestamp":"2026-11-24T03:18:19.480Z"}`, "json " + ms + "Z 1ms"},
		"toISOString, recorded":                  {"2026-11-24T04:08:30.099Z x", "iso 2026-11-24T04:08:30.099Z 1ms"},
		"JavaScript's Date, recorded":            {"Tue Nov 24 2026 12:08:30 GMT+0800 (China Standard Time)", "named 2026-11-24T04:08:30Z 1s"},
		"Python logging, recorded":               {"2026-11-24 12:08:27,998 - root - WARNING - x", "iso 2026-11-24T12:08:27.998 1ms"},
		"Python logging, level first":            {"WARNING:2026-11-24 03:18:19,480:x", "iso " + ms + " 1ms"},
		"Python isoformat, recorded":             {"2026-11-24T12:08:28.008828 iso", "iso 2026-11-24T12:08:28.008828 1µs"},
		"ctime of Python and Perl, recorded":     {"Tue Nov 24 12:08:27 2026 ctime", "named 2026-11-24T12:08:27 1s"},
		"uvicorn and http.server's access log":   {`127.0.0.1 - - [24/Nov/2026 12:08:28] "GET / HTTP/1.1" 200 -`, "named 2026-11-24T12:08:28 1s"},
		"gunicorn":                               {"[2026-11-24 11:18:19 +0800] [1] [INFO] x", "iso 2026-11-24T03:18:19Z 1s"},
		"loguru":                                 {"2026-11-24 03:18:19.480 | INFO     | __main__:<module>:3 - x", "iso " + ms + " 1ms"},
		"structlog":                              {"\x1b[2m2026-11-24 03:18:19\x1b[0m [\x1b[32minfo     ] x", "iso 2026-11-24T03:18:19 1s"},
		".NET in JSON":                           {`{"EventId":14,"LogLevel":"Information","Timestamp":"2026-11-24T03:18:19.4800000Z","Message":"x"}`, "json " + ms + "Z 100ns"},
		"Serilog":                                {"[03:18:19 INF] x", "clock 03:18:19 1s"},
		"Serilog, compact":                       {`{"@t":"2026-11-24T03:18:19.4801230Z","@mt":"x"}`, "json " + µs + "Z 100ns"},
		"NLog":                                   {"2026-11-24 03:18:19.4801|INFO|x", "iso 2026-11-24T03:18:19.4801 100µs"},
		"Ruby's Logger":                          {"I, [2026-11-24T03:18:19.480123 #1]  INFO -- : x", "iso " + µs + " 1µs"},
		"Rails":                                  {`Started GET "/orders" for 10.0.0.7 at 2026-11-24 11:18:19 +0800`, "iso 2026-11-24T03:18:19Z 1s"},
		"PHP's error_log":                        {"[24-Nov-2026 03:18:19 UTC] PHP Warning:  x", "named 2026-11-24T03:18:19Z 1s"},
		"PHP's error_log, a zone by name":        {"[24-Nov-2026 11:18:19 Asia/Shanghai] x", "named 2026-11-24T11:18:19 1s"},
		"php-fpm":                                {"[24-Nov-2026 03:18:19] NOTICE: ready to handle connections", "named 2026-11-24T03:18:19 1s"},
		"monolog":                                {"[2026-11-24T03:18:19.480123+00:00] app.INFO: x [] []", "iso " + µs + "Z 1µs"},
		"tracing":                                {"\x1b[2m2026-11-24T03:18:19.480123Z\x1b[0m \x1b[32m INFO\x1b[0m shop: x", "iso " + µs + "Z 1µs"},
		"env_logger":                             {"[2026-11-24T03:18:19Z INFO  shop] x", "iso 2026-11-24T03:18:19Z 1s"},
		"syslog, RFC 3164":                       {"<34>Nov  4 03:18:19 host app[7]: x", "named 11-04T03:18:19 1s"},
		"syslog, RFC 5424":                       {"<34>1 2026-11-24T03:18:19.480Z host app - - - x", "iso " + ms + "Z 1ms"},
		"Apache's error log":                     {"[Tue Nov 24 03:18:19.480123 2026] [core:notice] x", "named " + µs + " 1µs"},
		"nginx":                                  {"2026/11/24 03:18:19 [error] 7#7: *1 connect() failed (111: Connection refused)", "iso 2026-11-24T03:18:19 1s"},
		"nginx's access log":                     {`10.0.0.7 - - [24/Nov/2026:11:18:19 +0800] "GET / HTTP/1.1" 200 5`, "named 2026-11-24T03:18:19Z 1s"},
		"redis":                                  {"1:M 24 Nov 2026 03:18:19.480 * Ready to accept connections", "named " + ms + " 1ms"},
		"PostgreSQL":                             {"2026-11-24 03:18:19.480 UTC [1] LOG:  x", "iso " + ms + "Z 1ms"},
		"Envoy, recorded":                        {"[2026-11-24 04:08:31.106][21452][info][config] [source/server/configuration_impl.cc:148] loading 0 listener(s)", "iso 2026-11-24T04:08:31.106 1ms"},
		"Envoy of Istio":                         {"2026-11-24T03:18:19.480123Z\tinfo\tEnvoy proxy is ready", "iso " + µs + "Z 1µs"},
		"Envoy's access log":                     {`[2026-11-24T03:18:19.480Z] "GET / HTTP/1.1" 503 UF 0 91 3`, "iso " + ms + "Z 1ms"},
		"Envoy's access log in JSON":             {`{"response_code":503,"start_time":"2026-11-24T03:18:19.480Z"}`, "json " + ms + "Z 1ms"},
		"logfmt with an epoch":                   {"level=info ts=1795490299.480 msg=x", "epoch " + ms + "Z 1ms"},
		"squid":                                  {"1795490299.480     5 10.0.0.7 TCP_MISS/200", "epoch " + ms + "Z 1ms"},
		"nanoseconds since 1970":                 {`{"time":"1795490299480123456","msg":"x"}`, "json 2026-11-24T03:18:19.480123456Z 1ns"},
		"microseconds since 1970":                {`{"ts":1795490299480123,"msg":"x"}`, "json " + µs + "Z 1µs"},
		"the last second of a leap minute":       {"2026-12-31T23:59:60Z x", "iso 2027-01-01T00:00:00Z 1s"},

		"console of Node has none":       {"listening on 3000", ""},
		".NET's console has none":        {"info: Microsoft.Hosting.Lifetime[14]", ""},
		"uvicorn has none":               {"INFO:     Started server process [1]", ""},
		"a stack trace":                  {"\tat java.base/sun.nio.ch.Net.connect0(Native Method)", ""},
		"a date alone":                   {"released 2026-11-24, by us", ""},
		"a version":                      {"version 1.2026.11", ""},
		"a clock within a line":          {"the job runs at 03:18:19 each day", ""},
		"an address":                     {"dial tcp 10.96.0.1:443: connect: connection refused", ""},
		"an IPv6 address":                {"[::1]:8080 10:11:12:13", ""},
		"a number that is no time":       {"id=1795490299 x", ""},
		"a telephone number in brackets": {"[99999999999] x", ""},
		"a month that is none":           {"2026-13-24 03:18:19 x", ""},
		"a day that the month has not":   {"2026-02-30 03:18:19 x", ""},
		"an hour that is none":           {"2026-11-24 24:18:19 x", ""},
		"a name of a file":               {"backup-2026-11-24 03:18:19.gz", ""},
		"a word like a month":            {"Mayor 24 03:18:19", ""},
		"JSON with another time":         {`{"msg":"at \"time\":\"2026-11-24T03:18:19Z\"","n":1}`, ""},
		"nothing":                        {"", ""},
		"half a colour":                  {"\x1b[3", ""},
		"half a time":                    {"2026-11-24T03:18:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, ok := Find([]byte(tt.line))
			got := ""
			if ok {
				got = text(s)
			}
			if got != tt.want {
				t.Errorf("%q\n got %q\nwant %q", tt.line, got, tt.want)
			}
		})
	}
}

func lines(s string) (out [][]byte) {
	for l := range strings.SplitSeq(s, "\n") {
		out = append(out, []byte(l))
	}
	return out
}

func TestLayout(t *testing.T) {
	const k = "2026-11-24T03:18:19.480123456Z "
	for name, tt := range map[string]struct{ log, want string }{
		"a stack trace belongs to the line before": {
			"2026-11-24 03:18:19,480 ERROR x\njava.net.ConnectException: refused\n\tat java.base/Net\n    ... 7 more\n2026-11-24 03:18:20,001 INFO y",
			"own 03:18:19.480 | +java.net. | +\tat java. | +    ... 7 | own 03:18:20.001",
		},
		"each record of java.util.logging has two lines": {
			"Nov 24, 2026 12:08:25 PM J main\nINFO: started",
			"own 12:08:25.000 | +INFO: sta",
		},
		"a log without times has lines of their own": {
			"listening\nError: refused\n    at connect (node:net:1)\nexit",
			"listening | Error: re | +    at co | exit",
		},
		"kubectl's times are taken off": {
			k + "listening\n" + k + "Error: refused\n" + k + "    at connect",
			"written 03:18:19.480 listening | written 03:18:19.480 Error: re | written 03:18:19.480 +    at co",
		},
		"and those of CRI with the stream": {
			"2026-11-24T11:18:19.48+08:00 stdout F 2026/11/24 11:18:19 x\n2026-11-24T11:18:19.5+08:00 stderr P half",
			"written 03:18:19.480 own 11:18:19.000 | written 03:18:19.500 +half",
		},
		"a program that prints such times itself keeps them": {
			"2026-11-24T03:18:19.480Z x\nno time",
			"own 03:18:19.480 | +no time",
		},
		"a line in another layout is read too": {
			"2026/11/24 03:18:19 [error] x\n2026/11/24 03:18:20 [error] y\n10.0.0.7 - - [24/Nov/2026:03:18:21 +0000] \"GET /\"",
			"own 03:18:19.000 | own 03:18:20.000 | own 03:18:21.000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := lines(tt.log)
			layout := Learn(all)
			var got []string
			for _, line := range all {
				r := layout.Read(line)
				var parts []string
				if r.HasWritten {
					parts = append(parts, "written "+r.Written.Wall.Format("15:04:05.000"))
				}
				if r.HasOwn {
					parts = append(parts, "own "+r.Own.Wall.Format("15:04:05.000"))
				} else {
					begin := string(r.Text[:min(9, len(r.Text))])
					if r.Continues {
						begin = "+" + begin
					}
					parts = append(parts, begin)
				}
				got = append(got, strings.Join(parts, " "))
			}
			if got := strings.Join(got, " | "); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestFits(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	started := at("2026-11-24T13:16:22Z")
	for name, tt := range map[string]struct {
		first, last string
		to          time.Time
		want        string
	}{
		"one, for a run of a second":                  {"2026-11-24 21:16:22,900", "2026-11-24 21:16:23,100", at("2026-11-24T13:16:24Z"), "[8h0m0s]"},
		"UTC":                                         {"2026-11-24 13:16:22", "2026-11-24 13:16:23", at("2026-11-24T13:16:24Z"), "[0s]"},
		"India's, of half an hour":                    {"2026-11-24 18:46:22", "2026-11-24 18:46:23", at("2026-11-24T13:16:24Z"), "[5h30m0s]"},
		"Nepal's, of a quarter, without a date":       {"19:01:22.100", "19:01:23.100", at("2026-11-24T13:16:24Z"), "[5h45m0s]"},
		"behind UTC, and so on the day before":        {"Nov 24 03:16:22", "Nov 24 03:16:23", at("2026-11-24T13:16:24Z"), "[-10h0m0s]"},
		"several, for a run of half an hour":          {"2026-11-24 13:16:30", "2026-11-24 13:20:00", at("2026-11-24T13:46:00Z"), "[-15m0s 0s]"},
		"none: the log of another run":                {"2026-11-24 13:21:22", "2026-11-24 13:21:23", at("2026-11-24T13:16:24Z"), "[]"},
		"none: the log is longer than the run":        {"2026-11-24 13:16:22", "2026-11-24 14:00:00", at("2026-11-24T13:16:24Z"), "[]"},
		"one: the log is as long as the run, an hour": {"2026-11-24 14:16:22", "2026-11-24 15:10:00", at("2026-11-24T14:17:00Z"), "[1h0m0s]"},
	} {
		t.Run(name, func(t *testing.T) {
			first, ok1 := Find([]byte(tt.first))
			last, ok2 := Find([]byte(tt.last))
			if !ok1 || !ok2 {
				t.Fatal("no time")
			}
			if got := fmt.Sprint(Fits(first, last, started, tt.to, 5*time.Second)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A year that the line has not is the one nearest to the run, also around New Year.
func TestMissingParts(t *testing.T) {
	near := time.Date(2026, 12, 31, 23, 59, 58, 0, time.UTC)
	for line, want := range map[string]string{
		"Jan  1 00:00:02 host x":      "2027-01-01T00:00:02Z",
		"E1231 23:59:59.000001 1 x]":  "2026-12-31T23:59:59.000001Z",
		"00:00:02.5 [main] x":         "2027-01-01T00:00:02.5Z",
		"23:59:59.5 [main] x":         "2026-12-31T23:59:59.5Z",
		"2020-01-01T00:00:00+01:00 x": "2019-12-31T23:00:00Z",
	} {
		s, ok := Find([]byte(line))
		if got := s.Instant(0, near).Format(time.RFC3339Nano); !ok || got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"2026-11-24T03:18:19.480Z x", "I1124 03:18:19.480123 1 x]", `{"ts":1795490299.48}`, "Nov 24, 2026 3:18:19 AM x", "[24/Nov/2026:03:18:19 +0000]", "\x1b[2m03:18:19,480",
		"2026-11-24T03:18:19.480123456Z stdout F x\n2026-11-24T03:18:19.480123456Z stdout P x", "1:M 24 Nov 2026 03:18:19.480 *", `{"instant":{"epochSecond":1795490299,"nanoOfSecond":4}}`, "\xff\x00Nov"} {
		f.Add([]byte(s))
	}
	near := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, log []byte) {
		all := lines(string(log))
		layout := Learn(all)
		for _, line := range all {
			s, ok := Find(line)
			if ok && (s.At < 0 || s.At >= s.End || s.End > len(line) || s.Resolution < 1 || s.Resolution > time.Second) {
				t.Fatalf("%q: %+v", line, s)
			}
			if ok {
				if again, ok := Find(append([]byte(nil), line...)); !ok || again != s {
					t.Fatalf("%q: %+v, then %+v", line, s, again)
				}
				s.Instant(time.Hour, near)
				Fits(s, s, near, near.Add(time.Minute), time.Second)
			}
			r := layout.Read(line)
			if len(r.Text) > len(line) || r.HasOwn && r.Continues {
				t.Fatalf("%q: %+v", line, r)
			}
		}
	})
}
