// Package app contains the parts of awesome-app that do not fetch settings: it logs, and serves /healthz and
// /settings. ../../README.md describes the behaviour in all languages.
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

// Settings are the log settings from the configuration server.
type Settings struct{ Level slog.Level }

// Parse parses a document with lines of the form key=value. The key "level" is required, others are ignored.
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

// A State is the content of /settings.
type State struct {
	Settings
	Source string // source of the settings in use
	Err    error  // why the server's settings are not in use
}

// Level is the level of the log. It may be changed at any time.
var Level slog.LevelVar

// Log sets up the log, with the level INFO at first.
func Log() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: &Level})))
	slog.Info("starting awesome-app", "config", os.Getenv("CONFIG_URL"))
}

// Refuse ends the program because an environment variable is invalid or it cannot serve.
func Refuse(err error) {
	slog.Error("awesome-app cannot start", "error", err)
	os.Exit(2)
}

// Serve serves until SIGTERM or an interrupt, and then returns nil. The function state returns the present
// state for /settings.
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
