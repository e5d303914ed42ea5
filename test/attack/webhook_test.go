package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/webhook"
)

// webhookCases are attacks on the webhook by any client, besides the cases in [reviews].
var webhookCases = []attacked{
	posted("webhook: 300 init containers", 8, 12, func() string {
		return pod(`"metadata":{"name":"app"},"spec":{"initContainers":[` + list(299, `{"name":"c%d","image":"c:1","command":["/c"]}`) + `],"containers":[{"name":"app","image":"app:1","command":["/app"]}]}`)
	}),
	posted("webhook: reviews of 2.9 MB at once", 60, 200, func() string {
		return pod(`"spec":{"containers":[{"name":"app","image":"app:1","command":["/app"],"env":[` + list(28, `{"name":"v%d","value":"`+strings.Repeat("a", 100_000)+`"}`) + `]}]}`)
	}),
	posted("webhook: reviews of 250 kB at once", 60, 200, func() string {
		return pod(`"spec":{"containers":[{"name":"app","image":"app:1","command":["/app"],"env":[` + list(7000, `{"name":"v%d","value":"a"}`) + `]}]}`)
	}),
	posted("webhook: lists of empty objects", 20, 60, func() string {
		return pod(`"spec":{"volumes":[` + strings.Repeat("{},", 900_000) + `{}],"containers":[{"name":"app","image":"app:1"}]}`)
	}),
	posted("webhook: nested lists", 20, 60, func() string {
		return pod(`"spec":` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000))
	}),
	{
		name:     "webhook: half of a body, and silence",
		ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			return v.hang(ctx, v.n(200, 600), "POST "+webhook.Path+" HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{\"kind\":")
		},
	},
	{
		name:     "webhook: half of a header, and silence",
		ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			return v.hang(ctx, v.n(200, 600), "POST "+webhook.Path+" HTTP/1.1\r\nHost: ")
		},
	},
	{
		name:     "webhook: clients that leave",
		ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			c, err := v.web()
			if err != nil {
				return "", err
			}
			body := reviewOf(complete(100))
			return repeat(ctx, v.n(20, 60), func(ctx context.Context, worker int) error {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(1+worker)*time.Millisecond)
				defer cancel()
				return v.review(ctx, c, body)
			})
		},
	},
}

// posted makes a case in which workers post the same review repeatedly. short and inFull are the numbers of
// workers in the two forms of the suite.
func posted(name string, short, inFull int, object func() string) attacked {
	return attacked{name: name, ordinary: review, attack: func(ctx context.Context, v victim) (string, error) {
		c, err := v.web()
		if err != nil {
			return "", err
		}
		body := reviewOf(object())
		return repeat(ctx, v.n(short, inFull), func(ctx context.Context, _ int) error { return v.review(ctx, c, body) })
	}}
}

// hang keeps this many connections open, on each of which it sends only the beginning of a request.
func (v victim) hang(ctx context.Context, connections int, text string) (string, error) {
	config, err := v.tls()
	if err != nil {
		return "", err
	}
	return repeat(ctx, connections, func(ctx context.Context, _ int) error {
		c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", v.at(contract.WebhookPort))
		if err != nil {
			return err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		if _, err := fmt.Fprint(c, text); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1)) // returns when the server closes the connection
		return err
	})
}

func pod(fields string) string { return "{" + fields + "}" }

// list returns n elements of a JSON list, from a format that takes one number.
func list(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
