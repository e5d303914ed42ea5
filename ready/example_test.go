package ready_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"outrider.dev/ready"
)

// quiet discards the log of the examples; a program does not need this option.
var quiet = ready.Log(slog.New(slog.DiscardHandler))

// Wait for the sidecar, if there is one, and for a database.
func ExampleWait() {
	db, _ := net.Listen("tcp", "127.0.0.1:0")
	defer db.Close()

	err := ready.Wait(context.Background(), quiet,
		ready.Proxy(), // no condition outside a mesh
		ready.On("tcp://"+db.Addr().String()),
	)
	fmt.Println(err)
	// Output: <nil>
}

// Try for a while and then continue, like a loop with "sleep 1".
func ExampleContinue() {
	err := ready.Wait(context.Background(), quiet, ready.On("tcp://127.0.0.1:1"), ready.For(100*time.Millisecond), ready.Continue)
	fmt.Println(err)
	// Output: <nil>
}

// The error names what is missing.
func ExampleError() {
	err := ready.Wait(context.Background(), quiet, ready.On("file:///var/run/no-such-file"), ready.For(100*time.Millisecond))
	if failed := (*ready.Error)(nil); errors.As(err, &failed) {
		for _, m := range failed.Missing {
			fmt.Printf("%s: %v\n", m.Condition, m.Err)
		}
	}
	// Output: file:///var/run/no-such-file: no such file or directory
}

// A condition can be any function.
func ExampleCheck() {
	ping := func(context.Context) error { return nil } // (*sql.DB).PingContext
	fmt.Println(ready.Wait(context.Background(), quiet, ready.Check("postgres", ping)))
	// Output: <nil>
}

// An invalid option is an error before any wait begins.
func ExampleNew() {
	_, err := ready.New(ready.On("tcp://db"))
	fmt.Println(err)
	// Output: ready: tcp://db: the port is missing
}

// A server's readiness probe reports the progress of the wait.
func ExampleWaiter_ServeHTTP() {
	w, err := ready.New(quiet, ready.Check("cache", func(context.Context) error { return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", w)
	probe := func() {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		fmt.Print(rec.Code, " ", rec.Body)
	}

	probe()
	_ = w.Wait(context.Background())
	probe()
	// Output:
	// 503 {"ready":false,"missing":[{"condition":"cache","error":"no answer yet"}]}
	// 200 {"ready":true}
}
