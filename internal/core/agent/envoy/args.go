package envoy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ReadyMessage is the line that Envoy's component "config" logs at info just before the workers
// start, about 2 ms before /ready answers 200. The text may change with Envoy's release, so also
// poll [Admin.Ready], slowly.
const ReadyMessage = "all dependencies initialized. starting workers"

// logFormat makes each log line a JSON object, see [ParseLine]. It is set on the command line and
// not in the bootstrap's application_log_config (Envoy refuses both together), so that it applies
// from the first line, which tells why a bootstrap was rejected.
const logFormat = `{"time":"%Y-%m-%dT%T.%f%z","level":"%l","component":"%n","source":"%s:%#","message":"%j"}`

// Args returns Envoy's arguments for the bootstrap in a file.
func (o Options) Args(bootstrap string) []string {
	o = o.withDefaults()
	family := "v4"
	if o.Family == IPv6 {
		family = "v6"
	}
	return append(o.HotRestart.args(),
		"-c", bootstrap,
		"--concurrency", strconv.Itoa(o.Concurrency),
		"--drain-time-s", strconv.FormatInt(int64(o.DrainTime/time.Second), 10),
		// With immediate, every response during a drain has "connection: close"; with gradual, a
		// random share of them, which rises until the end of the drain.
		"--drain-strategy", "immediate",
		"--local-address-ip-version", family,
		"--file-flush-interval-msec", "1000",
		"--skip-deprecated-logs",
		"--log-level", o.Log.Level,
		"--component-log-level", componentLevels(o.Log),
		"--log-format", logFormat,
	)
}

// componentLevels returns "component:level,...". The component config has the level info or a more detailed one.
func componentLevels(l Log) string {
	all := map[string]string{}
	maps.Copy(all, l.Components)
	level, own := all["config"]
	if !own {
		level = l.Level
	}
	if !slices.Contains([]string{"trace", "debug", "info"}, level) {
		level = "info"
	}
	all["config"] = level
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+":"+all[name])
	}
	return strings.Join(out, ",")
}
