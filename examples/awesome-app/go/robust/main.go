// Command robust is awesome-app with outrider.dev/bootconfig: it starts at once with the settings that are
// available locally, and uses those of the configuration server when they arrive.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"outrider.dev/bootconfig"
	"outrider.dev/examples/awesome-app/app"
)

// embedded is the document for a start without a server and without a stored document.
const embedded = "level=INFO\n"

func main() {
	app.Log()
	if err := run(os.Getenv("CONFIG_URL")); err != nil {
		app.Refuse(err)
	}
}

func run(url string) error {
	if url == "" { // no configuration server
		return app.Serve(func() app.State { return app.State{Source: string(bootconfig.FromEmbedded)} })
	}
	config, err := open(url)
	if err != nil {
		return err
	}
	defer config.Close()
	config.OnChange(func(s bootconfig.Snapshot[app.Settings]) {
		app.Level.Set(s.Value.Level)
		slog.Info("log settings in use", "log_level", s.Value.Level, "source", s.Source)
	})
	return app.Serve(func() app.State {
		s := config.Snapshot()
		return app.State{Settings: s.Value, Source: string(s.Source), Err: s.Err}
	})
}

func open(url string) (*bootconfig.Config[app.Settings], error) {
	centre, err := bootconfig.NewHTTP(url, bootconfig.HTTPOptions{})
	if err != nil {
		return nil, fmt.Errorf("CONFIG_URL: %w", err)
	}
	refresh := time.Minute
	if text := os.Getenv("REFRESH"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 || seconds > 9999 {
			return nil, fmt.Errorf("REFRESH is %q; it must be a number of seconds, from 1 to 9999", text)
		}
		refresh = time.Duration(seconds) * time.Second
	}
	return bootconfig.Open(context.Background(), bootconfig.Options[app.Settings]{
		Provider: centre,
		Embedded: []byte(embedded),
		LastGood: os.Getenv("LAST_GOOD"),
		Decode:   app.Parse,
		Refresh:  refresh,
		Timeout:  2 * time.Second,
		MaxSize:  64 << 10,
		OnError:  func(err error) { slog.Warn("log settings stay as they are", "error", err) },
	})
}
