package attack

import (
	"context"
	"fmt"
	"strings"
)

// reviews are attacks with reviews of pods, by a client that can reach the webhook's port.
var reviews = []attacked{
	{
		name:     "reviews: 100 containers, a complete graph",
		ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			c, err := v.web()
			if err != nil {
				return "", err
			}
			body := reviewOf(complete(100))
			return repeat(ctx, v.n(8, 12), func(ctx context.Context, _ int) error { return v.review(ctx, c, body) })
		},
	},
	{
		name:     "reviews: annotations whose YAML unfolds to gigabytes",
		ordinary: review,
		attack: func(ctx context.Context, v victim) (string, error) {
			c, err := v.web()
			if err != nil {
				return "", err
			}
			var bodies [][]byte
			for _, text := range unfolding() {
				for _, key := range []string{"proxy.istio.io/config", "outrider.dev/depends-on"} {
					bodies = append(bodies, reviewOf(fmt.Sprintf(`{"metadata":{"name":"app","annotations":{%q:%q}},"spec":{"containers":[{"name":"app","image":"a","command":["/a"]}]}}`, key, text)))
				}
			}
			return repeat(ctx, v.n(8, 12), func(ctx context.Context, worker int) error { return v.review(ctx, c, bodies[worker%len(bodies)]) })
		},
	},
}

// unfolding returns YAML texts that expand when they are parsed: many aliases of a long text, aliases of aliases,
// many keys, and a deep list. Each is below the 256 KiB limit for a pod's annotations.
func unfolding() []string {
	layers := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		layers += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	keys := ""
	for i := range 24_000 {
		keys += fmt.Sprintf("k%d: 1\n", i)
	}
	return []string{
		"x: &a \"" + strings.Repeat("y", 45_000) + "\"\nzone: [" + strings.TrimSuffix(strings.Repeat("*a,", 45_000), ",") + "]\n",
		layers, keys, strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
	}
}

// complete returns a pod with n containers. Each depends on all containers before it.
func complete(n int) string {
	var containers, edges []string
	for i := range n {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":"c:1","command":["/c"]}`, i))
		var before []string
		for j := range i {
			before = append(before, fmt.Sprintf("c%d=started", j))
		}
		if i > 0 {
			edges = append(edges, fmt.Sprintf(`"outrider.dev/depends-on.c%d":%q`, i, strings.Join(before, ",")))
		}
	}
	return fmt.Sprintf(`{"metadata":{"name":"app","annotations":{%s}},"spec":{"containers":[%s]}}`, strings.Join(edges, ","), strings.Join(containers, ","))
}
