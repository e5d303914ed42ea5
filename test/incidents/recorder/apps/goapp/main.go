// Command goapp is the Go application of recorded incidents: it fetches its configuration once.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func get(url string) error {
	r, err := http.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, r.Status, body)
	}
	return err
}

func main() {
	url, mode := os.Getenv("CONFIG_URL"), os.Getenv("MODE")
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	slog.Info("starting", "config", url)
	for {
		err := get(url)
		if err == nil {
			slog.Info("configuration loaded")
			break
		}
		if mode == "swallow" {
			slog.Warn("no configuration, using defaults", "error", err)
			break
		}
		slog.Error("reading the configuration", "error", err)
		if mode != "retry" {
			os.Exit(1)
		}
		time.Sleep(time.Second)
	}
	if mode == "crash" {
		var pools map[string][]int
		fmt.Println(pools["default"][0])
	}
	if mode == "job" {
		slog.Info("done")
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	for i := range 20 {
		if mode != "calls" {
			return
		}
		if err := get(url); err != nil {
			slog.Error("flushing", "order", i, "error", err)
		}
		time.Sleep(150 * time.Millisecond)
	}
}
