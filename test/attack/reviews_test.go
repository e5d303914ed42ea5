package attack

import (
	"context"
	"fmt"
	"strings"
)

// Reviews of pods: any client that reaches the webhook's port.
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
}

// complete is a pod with n containers in which each depends on all before it.
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
