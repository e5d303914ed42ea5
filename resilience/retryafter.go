package resilience

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfter parses the header Retry-After (RFC 9110, section 10.2.3), which is a number of seconds or
// a date. An invalid value counts as 0, as if the header were missing, and so does a date in the past.
// A number that a Duration cannot hold counts as the longest Duration.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.Trim(h.Get("Retry-After"), " \t")
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64 // too many digits
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(0, date.Sub(now))
}
