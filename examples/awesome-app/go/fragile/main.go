// Command fragile is awesome-app as many applications are: it fetches its log settings once, at its start, and
// exits if that fails.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"outrider.dev/examples/awesome-app/app"
)

func main() {
	app.Log()
	url := os.Getenv("CONFIG_URL")
	settings, err := load(url)
	if err != nil {
		slog.Error("log settings could not be loaded", "url", url, "error", err)
		os.Exit(1)
	}
	app.Level.Set(settings.Level)
	if err := app.Serve(func() app.State { return app.State{Settings: settings, Source: "provider"} }); err != nil {
		app.Refuse(err)
	}
}

func load(url string) (s app.Settings, err error) {
	response, err := http.Get(url) // the fault: no second try, no limit of time, nothing to go on with
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return s, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	document, err := io.ReadAll(response.Body)
	if err != nil {
		return s, err
	}
	err = app.Parse(document, &s)
	return s, err
}
