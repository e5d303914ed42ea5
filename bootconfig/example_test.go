package bootconfig_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"outrider.dev/bootconfig"
)

// Logging holds the settings that come from the configuration server.
type Logging struct {
	Level slog.Level `json:"level"`
}

// A logger starts with the program's level, and changes to the server's level when that arrives, without a
// restart.
func Example_logging() {
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"7"`)
		fmt.Fprint(w, `{"level": "DEBUG"}`)
	}))
	defer centre.Close()

	var level slog.LevelVar
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: &level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // the output of an example must be the same each time
			}
			return a
		},
	}))

	provider, err := bootconfig.NewHTTP(centre.URL+"/logging", bootconfig.HTTPOptions{})
	if err != nil {
		log.Error("configuration", "err", err)
		return
	}
	config, err := bootconfig.Open(context.Background(), bootconfig.Options[Logging]{
		Default:  func() Logging { return Logging{Level: slog.LevelWarn} },
		Provider: provider,
		LongPoll: time.Minute,
	})
	if err != nil {
		log.Error("configuration", "err", err)
		return
	}
	defer config.Close()

	changed := make(chan struct{}, 2)
	config.OnChange(func(s bootconfig.Snapshot[Logging]) {
		level.Set(s.Value.Level) // the default before OnChange returns, then each change
		if s.Source == bootconfig.FromProvider {
			changed <- struct{}{}
		}
	})

	<-changed // only so that the example has a fixed output
	log.Debug("the centre's level is in use", "version", config.Snapshot().Version)
	// Output: level=DEBUG msg="the centre's level is in use" version="\"7\""
}

// A program that must not run with an outdated value waits for the server, with a deadline.
func ExampleConfig_Wait() {
	config, err := bootconfig.Open(context.Background(), bootconfig.Options[Logging]{Provider: away{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer config.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // time limit: the example waits until it is over
	defer cancel()
	if err := config.Wait(ctx); err != nil {
		fmt.Println("going on with the", config.Snapshot().Source)
	}
	// Output: going on with the default
}

// away is a custom provider whose server is unreachable.
type away struct{}

func (away) String() string { return "a centre that is away" }

func (away) Fetch(ctx context.Context, r bootconfig.Request) (bootconfig.Document, error) {
	<-ctx.Done()
	return bootconfig.Document{}, ctx.Err()
}

// The last value of one process is the first value of the next.
func ExampleOptions_lastGood() {
	dir, err := os.MkdirTemp("", "example.*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	settings := filepath.Join(dir, "settings.json")
	if err := os.WriteFile(settings, []byte(`{"level": "ERROR"}`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	file, err := bootconfig.NewFile(settings)
	if err != nil {
		fmt.Println(err)
		return
	}
	for process := range 2 {
		config, err := bootconfig.Open(context.Background(), bootconfig.Options[Logging]{
			Provider: file,
			LastGood: filepath.Join(dir, "last-good"),
			Schema:   "1",
			Timeout:  time.Minute, // also limits Close, which waits for the disk
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		if process == 1 {
			fmt.Println(config.Get().Level)
		}
		if err := config.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
		config.Close()
	}
	// Output: ERROR
}
