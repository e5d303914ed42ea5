// Package app is awesome-app without the way in which it gets its log settings: it logs, and
// serves /healthz and /settings. ../../README.md has the contract of all languages.
package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Settings come from the configuration centre.
type Settings struct{ Level slog.Level }

// Parse reads a document, lines of the form key=value, of which it needs "level".
func Parse(document []byte, s *Settings) error {
	for line := range strings.Lines(string(document)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key != "level":
		case value == "DEBUG" || value == "INFO" || value == "WARN" || value == "ERROR":
			return s.Level.UnmarshalText([]byte(value))
		default:
			return fmt.Errorf("level is %q; it must be DEBUG, INFO, WARN or ERROR", value)
		}
	}
	return errors.New("the document has no level")
}

// A State is shown at /settings.
type State struct {
	Settings
	Source string // of the settings in use
	Err    error  // why they are not the centre's
}

// Level of the log.
var Level slog.LevelVar

// Log begins the log, with the level INFO.
func Log() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: &Level})))
	slog.Info("starting awesome-app", "config", os.Getenv("CONFIG_URL"))
}

// Refuse ends a program of which a variable cannot work.
func Refuse(err error) {
	slog.Error("awesome-app cannot start", "error", err)
	os.Exit(2)
}

// Serve serves until SIGTERM.
func Serve(state func() State) error {
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	http.HandleFunc("GET /settings", func(w http.ResponseWriter, _ *http.Request) {
		s, text := state(), ""
		if s.Err != nil {
			text = strings.ReplaceAll(s.Err.Error(), "\n", " ")
		}
		fmt.Fprintf(w, "level=%s\nsource=%s\nerror=%s\n", s.Level, s.Source, text)
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	slog.Info("awesome-app is ready", "address", listener.Addr().String())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() { <-stop; listener.Close() }()
	err = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slog.Debug("request", "path", r.URL.Path)
		http.DefaultServeMux.ServeHTTP(w, r)
	}))
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
